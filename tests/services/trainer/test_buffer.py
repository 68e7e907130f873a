"""What the trainer holds when two instances of admission decided on one group."""

from services.runtime.core import Position
from services.trainer.buffer import Buffer
from tests.services.trainer.core_world import admission

ADMITTED = admission(3)
EXCLUDED = admission(3, decision="excluded", reason="stale")


def place(offset: int) -> Position:
    return Position("group.admission.v1", 0, offset)


def test_the_first_decision_in_the_log_counts() -> None:
    buffer = Buffer()
    assert buffer.admission(ADMITTED, place(0), 0.0) is not None
    buffer.admission(EXCLUDED, place(1), 0.0)
    assert [held.number for held in buffer.admitted()] == [3]

    buffer = Buffer()
    buffer.admission(EXCLUDED, place(0), 0.0)
    assert buffer.admission(ADMITTED, place(1), 0.0) is None
    assert not buffer.admitted()


def test_the_trainers_own_exclusion_ends_an_admitted_group() -> None:
    buffer = Buffer()
    buffer.admission(ADMITTED, place(0), 0.0)
    buffer.admission(admission(3, decision="excluded", reason="stale", stage="trainer"), place(1), 0.0)
    assert not buffer.admitted()
    assert 3 in buffer.decided
