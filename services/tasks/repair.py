"""Reference repairs: as line edits for supervised traces on the training split, and as a candidate hands them in."""

from collections.abc import Iterator, Mapping, Sequence

from services.patch import admission
from services.patch.render import render
from services.tasks import catalogue
from services.tasks.catalogue import HELD_OUT_FAMILIES
from services.tasks.fixture import CheckSet, Fixture
from services.tasks.taskset import TRAIN, TaskSet


def reference_edit(fixture: Fixture) -> tuple[int, str]:
    """The one line edit that turns the buggy source into the reference: (1-based line number, line with indentation).

    Raises ValueError for a held-out family, whose repairs nobody may learn from; for the split by bug the caller
    answers (`reference_edits` takes it from the task set).
    """
    if fixture.family in HELD_OUT_FAMILIES:
        raise ValueError(f"{fixture.task_id}: the family is held out, its repair is not for training")
    (source,) = fixture.base_tree.values()
    before, after = source.splitlines(), catalogue.problem(fixture.problem).source.splitlines()
    different = [i for i, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    if len(different) != 1:
        raise ValueError(f"{fixture.task_id}: {len(different)} lines differ from the reference instead of one")
    return different[0] + 1, after[different[0]]


def reference_edits(tasks: TaskSet) -> Iterator[tuple[Fixture, tuple[int, str]]]:
    """Every training fixture of a catalogue task set with its repair; nothing of the held-out splits."""
    for fixture in tasks.split(TRAIN):
        yield fixture, reference_edit(fixture)


def admission_fault(base: Mapping[str, str], tree: Mapping[str, str], globs: Sequence[str]) -> str | None:
    """Why the verifier would refuse the change from `base` to `tree` as a candidate's diff; None when it admits it."""
    try:
        admitted = admission.admit(render(base, tree), base, globs)
    except admission.Refused as refused:
        return str(refused)
    return None if dict(admitted.tree) == dict(tree) else "the diff makes another tree"


def reference_fault(check: CheckSet) -> str | None:
    """Why no candidate could hand in the reference's repair of the unrepaired base; None when one can."""
    if not check.reference or not check.known_bad:
        return None
    base = check.known_bad[0]
    return admission_fault(base, check.reference, tuple(base))
