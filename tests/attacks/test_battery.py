"""Every executable row of the attack list and its relatives, on every kind of jail: verdict and attribution."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from services.runtime.jail.backend import Backend
from tests.attacks import battery, rows_channel, rows_escape, rows_resources, rows_table, rows_values
from tests.attacks.battery import Attack

MODULES = (rows_table, rows_channel, rows_values, rows_resources, rows_escape)
ROWS = {attack.name: attack for module in MODULES for attack in module.ROWS}
KINDLESS = {"R7": 4, "S1": 4, "S8": 4, "table": 30}
"""Rows of programs that touch nothing of their jail: so many of each meet docker, all of them bubblewrap.

`python -m tests.attacks docker` runs all of them there too.
"""


def on_docker() -> list[str]:
    left = dict(KINDLESS)
    chosen = []
    for name, attack in ROWS.items():
        left[attack.row] = left.get(attack.row, len(ROWS)) - 1
        if left[attack.row] >= 0:
            chosen.append(name)
    return chosen


EVERYWHERE = on_docker()
Outcomes = Mapping[str, "Future[tuple[str, str]]"]


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest, backend: Backend) -> Iterator[Outcomes]:
    """What becomes of every attack that was asked for, a few at a time: starting a jail is mostly waiting."""
    specs = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    chosen = [spec["name"] for spec in specs if spec.get("backend") == backend.name and spec.get("name") in ROWS]
    pool = ThreadPoolExecutor(4)
    try:
        yield {name: pool.submit(battery.run, backend, ROWS[name]) for name in chosen}
    finally:
        pool.shutdown(cancel_futures=True)


def check(attack: Attack, got: tuple[str, str], evidence: str) -> None:
    assert attack.good(*got, evidence), f"{': '.join(got)}, not {' or '.join(attack.causes) or 'pass'}"


@pytest.mark.parametrize("name", EVERYWHERE)
def test_row(backend: Backend, outcomes: Outcomes, name: str) -> None:
    check(ROWS[name], outcomes[name].result(), backend.evidence)


@pytest.mark.parametrize("name", [name for name in ROWS if name not in EVERYWHERE])
@pytest.mark.parametrize("backend", ["bubblewrap"], indirect=True, scope="package")
def test_more_of_a_row(backend: Backend, outcomes: Outcomes, name: str) -> None:
    check(ROWS[name], outcomes[name].result(), backend.evidence)


def test_no_run_leaves_anything_for_the_next(backend: Backend) -> None:
    for attack in rows_escape.PERSISTENCE:
        check(attack, battery.run(backend, attack), backend.evidence)
    assert backend.retired == 0


def test_every_row_that_can_be_run_is_here() -> None:
    """The attack list's rows; P is admission's (tests/services/verifier), and what is tested elsewhere says where."""
    elsewhere = {"R3": "hidden tests run outside", "I6": "certification", "I7": "test_verdicts", "I8": "test_verdicts"}
    wanted = [f"B{n}" for n in (1, 2, 4, 5, 6)] + [f"R{n}" for n in (1, 2, 3, 4, 5, 6, 7, 10, 11, 13, 14)]
    wanted += [f"H{n}" for n in range(1, 9)] + [f"S{n}" for n in (1, 2, 3, 4, 8, 9, 10)]
    wanted += [f"X{n}" for n in range(1, 9)] + [f"E{n}" for n in (1, 2, 3, 4, 5, 6, 7, 9)] + ["I1", "I4", "I5", "I9"]
    rows = {attack.row for attack in (*ROWS.values(), *rows_escape.PERSISTENCE)}
    assert [row for row in wanted if row not in rows and row not in elsewhere] == []
