"""Protects the audit: a trial without a fate or with two, or a contradiction, is named whatever order it is read in."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.record import Record
from services.runtime.ledger import audit
from tests.services.closure.records import admission, closed, completed, request, update, verdict

WORDS = ("pass", "fail")
HALF = ("pass", "unknown")
LATE = replace(admission(closed(0)), stage="trainer", decision="excluded", reason="stale")


def group(number: int, words: tuple[str, ...] = WORDS, **changes: object) -> list[Record]:
    """A group from request to closure."""
    out: list[Record] = []
    for member, word in enumerate(words):
        out += [request(number, member, len(words), **changes), completed(number, member, **changes)]
        if word != "missing":
            out.append(verdict(number, member, word, **changes))
    return [*out, closed(number, words, **changes)]


def decided(number: int, words: tuple[str, ...] = WORDS, version: int = 0) -> list[Record]:
    return [*group(number, words), admission(closed(number, words), version)]


def trained(number: int, version: int = 1) -> list[Record]:
    return [*decided(number), update(version, (number,))]


def test_every_fate_is_counted_and_the_sum_is_what_was_requested() -> None:
    records = [
        *trained(0),
        *decided(1, ("pass", "pass")),
        *decided(2, ("pass", "unknown")),
        *decided(3, version=5),
        *group(4, ("fail", "pass"), split="eval"),
        *decided(5),
        *[request(6, member, 2) for member in range(2)],
    ]
    report = audit(records)
    assert report.counts == {
        "trained": 2, "excluded/zero_contrast": 2, "excluded/unresolved": 2, "excluded/stale": 2, "evaluated": 2,
        "in_flight": 4,
    }  # fmt: skip
    assert report.requested == sum(report.counts.values()) == 14
    assert report.balanced
    assert report.in_flight == {
        "admitted, waiting for an update": ["run/00000005/0", "run/00000005/1"],
        "with the sampler": ["run/00000006/0", "run/00000006/1"],
    }
    assert "balanced" in report.lines()[0]
    assert "14 requested = " in report.lines()[0]


def test_an_evaluation_trial_without_a_verdict_is_not_called_evaluated() -> None:
    report = audit(group(0, ("pass", "unknown", "missing"), split="eval"))
    assert report.counts == {"evaluated": 1, "excluded/unresolved": 2}


def test_the_trainer_s_exclusion_is_the_fate_of_an_admitted_group() -> None:
    report = audit([*decided(0), LATE])
    assert (report.counts, report.balanced) == ({"excluded/stale": 2}, True)


def test_members_outside_a_shrunk_group_are_excluded_when_it_is_trained_on() -> None:
    words = ("pass", "fail", "unknown")
    shrunk = replace(closed(0, words), contrast="mixed", member_coefficients=(1.0, -1.0, None))
    records = [*group(0, words)[:-1], shrunk, admission(shrunk), update(1, (0,))]
    report = audit(records)
    assert (report.counts, report.balanced) == ({"trained": 2, "excluded/unresolved": 1}, True)


@pytest.mark.parametrize(
    ("records", "named"),
    [
        ([*trained(0), LATE], "2 fates"),
        ([*trained(0), update(2, (0,), update_id="another")], "was trained on 2 times"),
        ([*group(0), update(1, (0,))], "trained on but never admitted"),
        ([*decided(0, ("pass", "pass")), update(1, (0,))], "trained on but never admitted"),
        ([update(1, (9,)), *trained(0)], "never requested: run/00000009"),
        ([verdict(3, 0)], "never requested: run/00000003/0"),
        ([*trained(0), request(0, 0, 2, seed=99)], "requested twice with different content"),
        ([*trained(0), closed(0, ("fail", "pass"))], "closed 2 times with different content"),
        ([*decided(0), admission(closed(0), version=9)], "decided 2 times, differently"),
        ([*group(0)[:-1], admission(closed(0))], "decided but never closed"),
        ([*group(0), LATE], "never admitted"),
        ([*group(0, split="eval"), admission(closed(0))], "belongs to an evaluation"),
        ([*group(0), request(0, 2, 2)], "closed without its members run/00000000/2"),
        ([r for r in group(0) if r != verdict(0, 0, "pass")], "closed as pass, which no verdict says"),
        ([*group(0, HALF)[:-1], closed(0, HALF, member_rewards=(1.0, 0.0))], "has a reward"),
    ],
)  # fmt: skip
def test_every_contradiction_is_named(records: list[Record], named: str) -> None:
    report = audit(records)
    assert not report.balanced
    assert any(named in problem for problem in report.problems), report.problems
    assert "NOT BALANCED" in report.lines()[0]


def test_what_is_delivered_twice_is_noted_and_harmless() -> None:
    records = [*trained(0), *trained(0)]
    report = audit(records)
    assert report.balanced
    assert report.counts == {"trained": 2}
    assert len(report.notes) == 3


def test_at_the_end_of_a_run_what_closure_or_admission_owes_is_a_problem() -> None:
    unclosed, undecided = group(0)[:-1], group(1)
    report = audit([*unclosed, *undecided])
    assert report.balanced
    report = audit([*unclosed, *undecided, *decided(2), request(3, 0, 2)], over=True)
    assert report.problems == [
        "unaccounted at the end of the run, owed by closure: run/00000000/0, run/00000000/1",
        "unaccounted at the end of the run, owed by admission: run/00000001/0, run/00000001/1",
    ]


def test_where_every_trial_stands_is_said() -> None:
    records = [request(0, 0, 2), request(0, 1, 2), completed(0, 0), verdict(0, 0), completed(0, 1)]
    assert audit(records).in_flight == {
        "judged, waiting for its group": ["run/00000000/0"],
        "with the verifier": ["run/00000000/1"],
    }
    attempts = [request(0, 0, 1), completed(0, 0, final_attempt=False), verdict(0, 0, "pending")]
    assert audit(attempts).in_flight == {"with the sampler": ["run/00000000/0"]}


def test_nothing_at_all_balances() -> None:
    assert audit([]).lines() == ["audit: 0 requested = 0: balanced"]


def test_long_lists_are_cut_in_words() -> None:
    (line,) = [line for line in audit([completed(n, 0) for n in range(9)]).lines() if "problem" in line]
    assert line.endswith("and 4 more")


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 12))
def test_any_order_and_any_cut_of_a_run_s_log_adds_up(seed: int, groups: int) -> None:
    """Fates never overlap and never exceed what was requested, at any moment of a run that does nothing wrong."""
    random = Random(seed)
    records: list[Record] = []
    for number in range(groups):
        words = random.choice((WORDS, ("pass", "pass"), ("fail", "unknown")))
        split = random.choice(("train", "train", "eval"))
        mine = group(number, words, split=split)
        if split == "train":
            decision = admission(closed(number, words), random.randrange(5))
            mine.append(decision)
            if decision.decision == "admitted" and random.random() < 0.7:
                mine.append(update(number + 1, (number,)))
        records += mine[: random.randrange(len(mine) + 1)] if random.random() < 0.3 else mine
    report = audit(records)
    assert report.balanced, report.problems
    shuffled = random.sample(records, len(records))
    again = audit(shuffled + random.sample(shuffled, random.randrange(len(records) + 1)))
    assert (again.counts, again.requested, again.problems) == (report.counts, report.requested, [])
