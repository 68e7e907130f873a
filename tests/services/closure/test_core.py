"""Protects the closure of groups: exactly once, whatever is read twice, late, out of order, or after kill -9."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from schemas.codec import ContractViolation
from schemas.group import GroupClosed
from schemas.record import Record
from schemas.topics import GROUP_CLOSED, ROLLOUT_REQUESTED, VERIFICATION_VERDICT
from services.closure.cohort import Cohort, Rule
from services.closure.core import ClosureCore
from services.runtime.core import Effects
from tests.services.closure.records import RUN, message, request, verdict
from tests.services.closure.simulation import Log, Simulation

INPUTS = (ROLLOUT_REQUESTED, VERIFICATION_VERDICT, GROUP_CLOSED)


class Feed:
    """Gives records to a core that has caught up, with rising offsets per topic."""

    def __init__(self, rule: Rule | None = None, deadline_ms: int = 10_000) -> None:
        self.core = ClosureCore(RUN, rule or Rule(), deadline_ms)
        self.core.assigned(frozenset({0}))
        self.core.caught_up(0)
        self.offset = 0

    def __call__(self, *records: Record, now_ms: int = 0) -> Effects:
        effects = Effects()
        for record in records:
            effects += self.core.handle(message(record, self.offset), now_ms)
            self.offset += 1
        return effects


def closures(effects: Effects) -> list[GroupClosed]:
    return [output.record for output in effects.outputs if isinstance(output.record, GroupClosed)]


def test_a_group_closes_with_its_last_verdict_and_only_then_are_its_records_finished() -> None:
    feed = Feed()
    early = feed(*[request(0, m) for m in range(4)], *[verdict(0, m, "fail") for m in (2, 0, 3)])
    assert (early.outputs, early.done) == ([], [])
    last = feed(verdict(0, 1, "pass"))
    (group,) = closures(last)
    assert len(last.done) == 8
    assert group.member_verdicts == ("fail", "pass", "fail", "fail")
    assert group.member_coefficients == pytest.approx((-0.57735, 1.73205, -0.57735, -0.57735), abs=1e-5)
    assert (group.contrast, group.mean, group.rule) == ("mixed", 0.25, "complete")


@pytest.mark.parametrize(("words", "contrast"), [(("pass",) * 4, "all_pass"), (("fail",) * 4, "all_fail")])
def test_a_group_without_contrast_has_coefficients_of_exactly_zero(words: tuple[str, ...], contrast: str) -> None:
    feed = Feed()
    effects = feed(*[request(0, m) for m in range(4)], *[verdict(0, m, w) for m, w in enumerate(words)])
    (group,) = closures(effects)
    assert (group.contrast, group.member_coefficients) == (contrast, (0.0,) * 4)


def test_an_unknown_member_leaves_the_group_unresolved_and_never_counts_as_zero() -> None:
    feed = Feed()
    words = ("pass", "unknown", "pass", "pass")
    effects = feed(*[request(0, m) for m in range(4)], *[verdict(0, m, w) for m, w in enumerate(words)])
    (group,) = closures(effects)
    assert (group.contrast, group.mean, group.std) == ("unresolved", None, None)
    assert group.member_rewards == (1.0, None, 1.0, 1.0)
    assert group.member_coefficients == (None,) * 4


def test_shrink_leaves_the_unknown_member_out_of_mean_and_coefficients() -> None:
    feed = Feed(Rule("shrink", 0.75, "centered", 0.0))
    words = ("pass", "unknown", "fail", "fail")
    effects = feed(*[request(0, m) for m in range(4)], *[verdict(0, m, w) for m, w in enumerate(words)])
    (group,) = closures(effects)
    assert group.member_coefficients == (pytest.approx(2 / 3), None, pytest.approx(-1 / 3), pytest.approx(-1 / 3))
    assert (group.contrast, group.rule, group.mean) == ("mixed", "shrink:0.75", pytest.approx(1 / 3))


def test_shrink_below_its_fraction_is_unresolved() -> None:
    feed = Feed(Rule("shrink", 0.75))
    words = ("pass", "unknown", "unknown", "fail")
    (group,) = closures(feed(*[request(0, m) for m in range(4)], *[verdict(0, m, w) for m, w in enumerate(words)]))
    assert group.contrast == "unresolved"


def test_pending_decides_nothing_and_the_first_final_verdict_stands() -> None:
    feed = Feed()
    early = feed(*[request(0, m, 2) for m in range(2)], verdict(0, 0, "pending"), verdict(0, 0, "fail", attempt=1))
    assert early.outputs == []
    assert len(early.done) == 1
    (group,) = closures(feed(verdict(0, 0, "pass", attempt=2), verdict(0, 1, "pass")))
    assert (group.member_verdicts, group.member_attempts) == (("fail", "pass"), (1, 0))


def test_a_group_past_its_deadline_closes_unresolved_and_names_the_missing_members() -> None:
    feed = Feed(deadline_ms=10_000)
    feed(*[request(0, m) for m in range(3)], verdict(0, 1, "pass"), now_ms=500)
    assert feed.core.tick(10_400).outputs == []
    (group,) = closures(feed.core.tick(10_500))
    assert group.member_verdicts == ("missing", "pass", "missing", "missing")
    assert (group.contrast, group.member_versions) == ("unresolved", (-1, 0, -1, -1))
    late = feed(verdict(0, 0, "pass"), request(0, 3), now_ms=10_600)
    assert (late.outputs, len(late.done)) == ([], 2)


def test_a_verdict_whose_request_lies_behind_us_is_let_go_as_an_orphan() -> None:
    feed = Feed()
    assert feed(verdict(3, 0)).done == []
    effects = feed(request(7, 0))
    assert [position.offset for position in effects.done] == [0]
    assert feed.core.counts["orphans"] == 1


def test_an_orphan_without_later_requests_is_let_go_at_the_deadline() -> None:
    feed = Feed(deadline_ms=10_000)
    feed(verdict(3, 0))
    effects = feed.core.tick(10_000)
    assert (effects.outputs, len(effects.done)) == ([], 1)


@pytest.mark.parametrize(
    "record",
    [
        request(0, 5, 4),
        request(0, 1, 3),
        request(0, 1, task_id="another"),
        request(0, 1, trial_id="run/00000000/2"),
        request(0, 1, group_id="run/00000009"),
        verdict(0, 1, "pass", reward=None),
        verdict(0, 1, trial_id="run/00000001/1"),
        verdict(0, 1, trial_id="nonsense"),
    ],
)
def test_a_record_that_contradicts_the_plan_is_refused_and_changes_nothing(record: Record) -> None:
    feed = Feed()
    feed(request(0, 0))
    with pytest.raises(ContractViolation):
        feed(record)
    words = [verdict(0, m, "pass") for m in range(4)]
    assert len(closures(feed(*[request(0, m) for m in (1, 2, 3)], *words))) == 1


def test_records_of_another_run_pass_by() -> None:
    feed = Feed()
    other = request(0, 0, 1, run_id="other", group_id="other/00000000", trial_id="other/00000000/0")
    assert len(feed(other).done) == 1
    assert feed.core.open_groups == 0


def test_nothing_closes_before_the_log_was_read_to_its_end() -> None:
    core = ClosureCore(RUN, Rule(), 10_000)
    core.assigned(frozenset({0}))
    for offset, record in enumerate((request(0, 0, 1), verdict(0, 0), request(1, 0, 1), verdict(1, 0))):
        assert core.handle(message(record, offset), 0).outputs == []
    core.handle(message(_closure_of(0), 0), 0)
    (group,) = closures(core.caught_up(0))
    assert group.group_id == "run/00000001"


def _closure_of(group: int) -> GroupClosed:
    feed = Feed()
    return closures(feed(request(group, 0, 1), verdict(group, 0)))[0]


def test_a_revoked_partition_is_forgotten() -> None:
    feed = Feed()
    feed(request(0, 0))
    feed.core.revoked(frozenset({0}))
    assert feed.core.open_groups == 0


def _open(core: object) -> list[Cohort]:
    assert isinstance(core, ClosureCore)
    return [cohort for state in core._partitions.values() for cohort in state.open.values()]


def _arrivals(random: Random, groups: int, size: int) -> list[Record]:
    """Requests once each and in order of number, as dispatch's own tests prove; verdicts after their request, else in
    any order, with repeats and pending ones."""
    waiting: list[Record] = []
    out: list[Record] = []
    for group in range(groups):
        for member in range(size):
            out.append(request(group, member, size))
            word = random.choice(("pass", "fail", "fail", "unknown"))
            waiting += [verdict(group, member, "pending")] * (random.random() < 0.2)
            waiting += [verdict(group, member, word)] * random.choice((1, 1, 1, 2))
        random.shuffle(waiting)
        for _ in range(random.randrange(len(waiting) + 1)):
            out.append(waiting.pop())
    return out + waiting


@settings(max_examples=1000, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.integers(0, 2**32), st.integers(1, 6), st.integers(1, 3))
def test_every_group_closes_exactly_once_whatever_crashes_when(seed: int, groups: int, size: int) -> None:
    """Records of unfinished groups are read again from the watermark; closures stay readable as long as they matter.
    In the end everything is committed; what is left of closed groups, at the latest by the deadline."""
    random = Random(seed)
    log = Log()
    service = Simulation(log, lambda: ClosureCore(RUN, Rule(), 10**7), INPUTS)
    for record in _arrivals(random, groups, size):
        log.append(record)
        for _ in range(random.randrange(12)):
            service.step(random)
    service.drain()
    closed = [record.group_id for record in log.of(GROUP_CLOSED) if isinstance(record, GroupClosed)]
    assert sorted(closed) == sorted({f"run/{group:08d}" for group in range(groups)})
    assert [cohort for cohort in _open(service.core) if cohort.request is not None] == []
    service.tick(10**7)
    service.drain()
    assert len(log.of(GROUP_CLOSED)) == groups
    assert service.log.committed == {name: len(records) for name, records in log.records.items()}
