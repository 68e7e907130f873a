"""The reckoning itself: what it must call a loss, and what the schedule explains."""

import dataclasses
import typing

from schemas.group import GroupAdmission, GroupClosed
from schemas.policy import TrainingUpdate
from schemas.rollout import Invocation, RolloutCompleted, RolloutRequested
from schemas.verification import VerificationVerdict
from services.agent.engines.synthetic import is_right
from services.runtime.core import Message, Position
from services.runtime.ledger import audit
from tests.chaos.explained import Injured
from tests.chaos.faults import Fault
from tests.chaos.reckoning import Reckoning, Story, _fates, _repeats, _truths, _waits_seen, taken_over

GROUP = "run/00000000"
TRIAL = f"{GROUP}/0"


class Seen:
    """An observer that saw each attempt end at a given time."""

    def __init__(self, ended=None):
        self.ended = ended or {}
        self.judged = {}
        self.asked = self.closed = {}


def make(kind, **values):
    """A record with these values; the others are empty ones of their types."""
    empty = {str: "", int: 0, float: 0.0, bool: False}
    hints = typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        if field.name not in values and field.default is dataclasses.MISSING:
            hint = hints[field.name]
            values[field.name] = empty.get(hint, () if typing.get_origin(hint) is tuple else None)
    return kind(**values)


def asked():
    return make(RolloutRequested, run_id="run", group_id=GROUP, trial_id=TRIAL, split="train", group_size=1)


def unresolved(verdict, stops=()):
    """One trial whose attempts stopped like this, and whose group is excluded for it."""
    records = [asked()]
    for number, stop in enumerate(stops):
        records.append(
            make(RolloutCompleted, group_id=GROUP, trial_id=TRIAL, attempt=number, stop_reason=stop, final_attempt=True)
        )
    if verdict == "unknown":
        records.append(
            make(VerificationVerdict, group_id=GROUP, trial_id=TRIAL, verdict=verdict, cause=stops[-1] if stops else "")
        )
    closed = make(
        GroupClosed, group_id=GROUP, split="train", group_size=1, contrast="unresolved", member_trials=(TRIAL,),
        member_attempts=(0,), member_verdicts=(verdict,), member_rewards=(None,), member_coefficients=(None,),
    )  # fmt: skip
    decided = make(
        GroupAdmission, group_id=GROUP, stage="admission", decision="excluded", reason="unresolved",
        member_trials=(TRIAL,), member_coefficients=(None,),
    )  # fmt: skip
    return [*records, closed, decided]


def judged(records, story=None):
    out = Reckoning()
    _fates(records, audit(records, over=True), story, out)
    return out


def story(ended=None, hit="sandbox", kind="kill", batch_groups=1):
    injured = [Injured(Fault(0.0, kind, hit, 1.0, 0), since=10.0, until=11.0)]
    return Story(Seen(ended), injured, batch_groups, 0.5)


def test_a_trial_without_a_fate_is_lost():
    out = judged([asked()], story())
    assert out.losses == 1
    assert "without a fate, with the sampler" in out.problems[0]


def test_an_unresolved_trial_is_lost_unless_a_fault_explains_each_of_its_attempts():
    records = unresolved("unknown", ["sandbox_lost", "sandbox_lost"])
    during = {(TRIAL, 0): 12.0, (TRIAL, 1): 15.0}
    fine = judged(records, story(during))
    assert (fine.losses, fine.unresolved, fine.problems) == (0, 1, [])
    for bad in (
        judged(records, story({**during, (TRIAL, 1): 500.0})),  # long after
        judged(records, story({**during, (TRIAL, 1): 9.0})),  # before
        judged(records, story(during, hit="verifier")),  # somebody else
        judged(records),  # nothing is known
    ):
        assert bad.losses == 1
        assert "unresolved, which no fault explains: ['sandbox_lost'" in bad.problems[0]


def test_nothing_explains_a_deadline_that_passed_or_a_poisoned_group():
    out = judged(unresolved("missing"), story({(TRIAL, 0): 12.0}))
    assert (out.losses, "['missing']" in out.problems[0]) == (1, True)
    poisoned = [
        dataclasses.replace(r, reason="poison") if isinstance(r, GroupAdmission) else r for r in unresolved("missing")
    ]
    assert judged(poisoned, story()).losses == 2, "for its reason, and for what left it unresolved"


def test_a_wait_counts_from_when_the_group_last_changed_hands():
    seen = Seen()
    seen.asked, seen.closed = {GROUP: 100.0}, {GROUP: 420.0}
    for hit, kind, problems in (
        ("closure-2", "kill", 0), ("kafka-1", "kill", 0), ("everything", "whole", 0),
        ("closure-2", "pause", 1), ("sampler", "kill", 1),
    ):  # fmt: skip
        out = Reckoning()
        injured = [Injured(Fault(0.0, kind, hit, 1.0, 0), since=199.0, until=200.0)]
        _waits_seen(Story(seen, injured, 1, 0.5), 300.0, out)
        assert len(out.problems) == problems, (hit, kind)


def admitted():
    closed = make(
        GroupClosed, group_id=GROUP, split="train", group_size=1, contrast="mixed", member_trials=(TRIAL,),
        member_attempts=(0,), member_verdicts=("pass",), member_rewards=(1.0,), member_coefficients=(0.0,),
    )  # fmt: skip
    decided = make(
        GroupAdmission, group_id=GROUP, stage="admission", decision="admitted", member_trials=(TRIAL,),
        member_coefficients=(0.0,),
    )  # fmt: skip
    verdict = make(VerificationVerdict, group_id=GROUP, trial_id=TRIAL, verdict="pass", reward=1.0)
    return [asked(), verdict, closed, decided]


def test_admitted_groups_wait_rightly_only_while_they_are_fewer_than_an_update_takes():
    assert judged(admitted(), story(batch_groups=2)).losses == 0
    late = judged(admitted(), story(batch_groups=1))
    assert late.losses == 1
    assert "wait for an update" in late.problems[0]
    trained = make(TrainingUpdate, group_ids=(GROUP,), update_id="u", policy_version=1)
    assert judged([*admitted(), trained], story(batch_groups=1)).losses == 0


def test_a_verdict_against_the_engines_own_truth_is_a_problem():
    for verdict in ("pass", "fail"):
        out = Reckoning()
        _truths([make(VerificationVerdict, trial_id=TRIAL, attempt=0, verdict=verdict)], story(), out)
        assert bool(out.problems) == ((verdict == "pass") != is_right(f"{TRIAL}.0", 0.5))


def sampled(offset, started_ms, text):
    """One record of the same invocation, as it lies in partition 3."""
    record = make(
        Invocation,
        trial_id=TRIAL,
        invocation_id="i",
        started_ms=started_ms,
        ended_ms=started_ms + 10,
        tokenizer_digest=text,
    )
    return Message(Position("rollout.invocation.v1", 3, offset), 0, GROUP, {}, record, 0)


def test_tokens_that_a_sampler_had_read_are_not_sampled_again(tmp_path):
    (tmp_path / "sampler-2.log").write_text(
        'a line that is no JSON\n{"event": "reading to the ends", "ends": {"rollout.invocation.v1[3]": 8}}\n'
    )
    ends = taken_over(tmp_path)
    assert ends == {3: [8]}
    for pair, problems, late in (
        ([sampled(5, 100, "a"), sampled(9, 500, "b")], 1, 0),  # it stood there
        ([sampled(8, 100, "a"), sampled(9, 500, "b")], 0, 1),  # it came after the look
        ([sampled(5, 100, "a"), sampled(9, 105, "b")], 0, 1),  # begun before it was there
        ([sampled(5, 100, "a"), sampled(9, 100, "a")], 0, 0),  # the same record
    ):
        out = Reckoning()
        _repeats(pair, ends, out)
        assert (len(out.problems), out.late) == (problems, late), pair
