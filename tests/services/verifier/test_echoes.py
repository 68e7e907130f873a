"""Protects attempts against a second verdict after a crash: what would be read again finds the verdict it got."""

from hypothesis import given
from hypothesis import strategies as st

from services.runtime.core import Position
from services.runtime.watermark import Window
from services.verifier.echoes import SETTLE_MS, Echoes

COMPLETED, VERDICT = "rollout.completed.v1", "verification.verdict.v1"


def test_a_verdict_waits_for_every_completion_up_to_its_own() -> None:
    echoes = Echoes()
    for offset in range(3):
        echoes.delivered(Position(COMPLETED, 0, offset), (f"t{offset}", 0))
    echoes.finished(Position(COMPLETED, 0, 1))
    echoes.read_back(Position(VERDICT, 0, 0), ("t1", 0), 0)
    assert echoes.due(SETTLE_MS) == []  # number 0 is pending: number 1 would be read again
    echoes.finished(Position(COMPLETED, 0, 0))
    assert echoes.due(SETTLE_MS - 1) == []
    assert echoes.due(SETTLE_MS) == [Position(VERDICT, 0, 0)]
    assert echoes.due(SETTLE_MS) == []


def test_a_verdict_whose_completion_was_committed_before_the_start_goes_at_once() -> None:
    echoes = Echoes()
    echoes.delivered(Position(COMPLETED, 0, 9), ("t9", 0))
    echoes.read_back(Position(VERDICT, 0, 0), ("old", 0), 0)
    assert echoes.due(SETTLE_MS) == [Position(VERDICT, 0, 0)]


def test_partitions_do_not_wait_for_each_other_and_a_lost_one_is_forgotten() -> None:
    echoes = Echoes()
    echoes.delivered(Position(COMPLETED, 0, 0), ("a", 0))
    echoes.delivered(Position(COMPLETED, 1, 0), ("b", 0))
    echoes.finished(Position(COMPLETED, 1, 0))
    echoes.read_back(Position(VERDICT, 0, 0), ("a", 0), 0)
    echoes.read_back(Position(VERDICT, 1, 0), ("b", 0), 0)
    assert echoes.due(SETTLE_MS) == [Position(VERDICT, 1, 0)]
    echoes.revoked(frozenset({0}))
    assert echoes.due(SETTLE_MS) == []


@given(st.permutations(range(6)), st.integers(0, 6))
def test_at_any_crash_what_is_read_again_finds_its_verdict(order: list[int], judged: int) -> None:
    """Completions are judged in any order; then the process dies with whatever was committed."""
    echoes, completions, verdicts = Echoes(), Window(), Window()
    for offset in range(6):
        position = Position(COMPLETED, 0, offset)
        completions.deliver(position)
        echoes.delivered(position, (str(offset), 0))
    written = order[:judged]
    for place, offset in enumerate(written):
        completions.finish(offset)
        echoes.finished(Position(COMPLETED, 0, offset))
        verdicts.deliver(Position(VERDICT, 0, place))
        echoes.read_back(Position(VERDICT, 0, place), (str(offset), 0), 0)
        for position in echoes.due(SETTLE_MS):
            verdicts.finish(position.offset)
        found_again = set(written[verdicts.watermark or 0 : place + 1])
        read_again = set(range(completions.watermark or 0, 6))
        assert read_again & set(written[: place + 1]) <= found_again
