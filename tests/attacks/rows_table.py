"""The measured table of the thirteen classic attacks, on two fixed questions (E2) and on fresh ones (E3)."""

from tests.attacks.battery import Attack
from tests.services.verifier.hidden_cases import ATTACKS, RIGHT, WRONG

_ANY = (
    *("unencodable", "no_ready", "crash", "wrong_exception", "wrong_value", "protocol", "import_error"),
    *("undecodable", "output_flood"),
)


def _rows() -> list[Attack]:
    rows = []
    for level, check in (("E2", "pairs"), ("E3", "fresh")):
        rows += [
            Attack("table", f"{level}: right", RIGHT, (), check),
            Attack("table", f"{level}: honestly wrong", WRONG, ("wrong_value",), check),
        ]
        for name, source in ATTACKS.items():
            # Two public questions can be answered by heart: what fixed inputs are worth, where it shows.
            causes = () if (level, name) == ("E2", "hard-coded pairs") else _ANY
            rows.append(Attack("table", f"{level}: {name}", source, causes, check))
    return rows


ROWS = _rows()
