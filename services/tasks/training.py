"""Which tasks may be trained on: those whose check-sets are certified, unless a person says otherwise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from services.runtime.errors import UserError
from services.tasks.certificates import Certificates, load
from services.tasks.fixture import Fixture
from services.tasks.taskset import BadDocument

_NAMED = 3


@dataclass(frozen=True)
class Trainable:
    """Fixtures to train on, and those left out because certification found their check-sets unfit, with the reason."""

    fixtures: tuple[Fixture, ...]
    left_out: Mapping[str, str]

    def notice(self) -> str:
        """What was left out, in words; empty where nothing was."""
        return f"left out of training: {_few(self.left_out)}" if self.left_out else ""


def trainable(fixtures: Sequence[Fixture], held: Certificates, allow_uncertified: bool) -> Trainable:
    """The fixtures that may be trained on. Quarantined ones never may.

    Raises UserError naming the first that are not certified, unless `allow_uncertified`.
    """
    refused = held.refusals(fixtures)
    if refused and not allow_uncertified:
        raise UserError(
            f"{len(refused)} of {len(fixtures)} training check-sets are not certified: {_few(refused)}",
            "tasks.certificates",
            "make certificates with `rollstream tasks certify --all --source … --out FILE` and name them by "
            "--set tasks.certificates=FILE; or train on what nobody has tried with --set tasks.allow_uncertified=true",
        )
    left_out = held.quarantined(fixtures)
    return Trainable(tuple(fixture for fixture in fixtures if fixture.task_id not in left_out), left_out)


def object_key(taskset_digest: str) -> str:
    """Where a run's certificates lie in the object store, beside the documents of its task set."""
    return f"tasks/{taskset_digest}/certificates.json"


def read(document: bytes, where: str) -> Certificates:
    """The certificates of a document. Raises UserError."""
    try:
        return load(document)
    except BadDocument as error:
        raise UserError(str(error), where, "make them again: rollstream tasks certify --all --out FILE") from error


def read_file(path: Path) -> Certificates:
    """The certificates of a file. Raises UserError."""
    try:
        return read(path.read_bytes(), str(path))
    except (OSError, ValueError) as error:
        do = "name a file that `rollstream tasks certify` wrote, or a new one for it to write"
        raise UserError(f"cannot read certificates: {error}", str(path), do) from error


def _few(reasons: Mapping[str, str]) -> str:
    named = [f"{task_id} ({why})" for task_id, why in list(reasons.items())[:_NAMED]]
    more = len(reasons) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")
