"""Protects the two halves: what is public, what is hidden, and that stored documents are exactly what they say."""

import dataclasses
import json
import random

import pytest

from services.tasks import feedback, oracle, values
from services.tasks.build import build_catalogue
from services.tasks.comparators import Outcome
from services.tasks.fixture import CheckSet, Example, Fixture, canonical
from services.tasks.taskset import BadDocument, TaskSet, UnknownTask, load_hidden, load_public, sealed


@pytest.fixture(scope="module")
def tasks() -> TaskSet:
    return build_catalogue()


def test_documents_round_trip(tasks: TaskSet) -> None:
    public, hidden = load_public(tasks.public_document()), load_hidden(tasks.hidden_document())
    assert public.fixtures == tasks.fixtures
    assert public.splits == tasks.splits
    assert public.digest == tasks.digest
    assert public.public_document() == tasks.public_document()
    assert hidden.by_id == tasks.checks.by_id
    for fixture in public.fixtures:
        assert hidden.get(fixture.task_id).digest == fixture.check_digest


def test_public_half_holds_nothing_hidden(tasks: TaskSet) -> None:
    """No reference line, known-bad tree or hidden case is in what sampler and sandbox load."""
    document = json.loads(tasks.public_document())
    assert set(document["fixtures"][0]) <= {field.name for field in dataclasses.fields(Fixture)}
    assert b"known_bad" not in tasks.public_document()
    assert b"oracle" not in tasks.public_document()
    for fixture in tasks.fixtures:
        assert tasks.checks.get(fixture.task_id).reference["solution.py"] != fixture.base_tree["solution.py"]


def test_public_document_alone_cannot_judge(tasks: TaskSet) -> None:
    public = load_public(tasks.public_document())
    with pytest.raises(UnknownTask):
        public.checks.get(public.fixtures[0].task_id)
    with pytest.raises(BadDocument, match="no check set"):
        public.hidden_document()


def test_any_change_of_a_document_is_seen(tasks: TaskSet) -> None:
    document = tasks.public_document()
    with pytest.raises(BadDocument, match="digest"):
        load_public(document.replace(b"return i", b"return j", 1))
    with pytest.raises(BadDocument, match="format"):
        load_public(tasks.hidden_document())
    with pytest.raises(BadDocument, match="format"):
        load_hidden(document)
    for broken in (b"", b"[]", b"{", b"null", document[:-5]):
        with pytest.raises(BadDocument):
            load_public(broken)


def test_unknown_task_names_near_matches(tasks: TaskSet) -> None:
    known = tasks.fixtures[0].task_id
    with pytest.raises(UnknownTask) as caught:
        tasks.get(known + "x")
    assert known in caught.value.near
    assert known in str(caught.value)
    with pytest.raises(UnknownTask, match="no id is close"):
        tasks.checks.get("%%%")


def test_splits_must_hold_every_task_once(tasks: TaskSet) -> None:
    one = tasks.fixtures[:1]
    with pytest.raises(BadDocument, match="exactly once"):
        TaskSet("t", one, {"train": ()})
    with pytest.raises(BadDocument, match="exactly once"):
        TaskSet("t", one, {"train": (one[0].task_id,), "heldout_bugs": (one[0].task_id,)})
    with pytest.raises(BadDocument, match="twice"):
        TaskSet("t", one * 2, {"train": (one[0].task_id,) * 2})


def test_digest_covers_every_public_field(tasks: TaskSet) -> None:
    fixture = tasks.fixtures[0]
    for field in dataclasses.fields(fixture):
        document = fixture.to_json()
        changed = {**document, field.name: "other"}
        assert canonical(changed) != canonical(document)
    assert dataclasses.replace(fixture, first_failure="x").digest != fixture.digest
    assert Fixture.from_json(json.loads(canonical(fixture.to_json()))).digest == fixture.digest


def test_fresh_inputs_hold_decoys_and_repeats(tasks: TaskSet) -> None:
    for fixture in tasks.fixtures[::40]:
        check = tasks.checks.get(fixture.task_id)
        asked = check.inputs(random.Random(7))
        texts = [values.dumps(args) for args in asked]
        strata = len(oracle.oracle(check.problem, check.oracle_digest).domain.inputs(random.Random(7)))
        assert len(asked) == check.cases_per_trial + strata + round(0.1 * strata)
        assert {values.dumps(example.args) for example in fixture.public_checks} <= set(texts)
        assert len(set(texts)) < len(texts)
        assert check.inputs(random.Random(7)) == asked
        assert check.inputs(random.Random(8)) != asked


def test_repeats_share_no_mutable_object(tasks: TaskSet) -> None:
    check = tasks.checks.get(next(f.task_id for f in tasks.fixtures if f.entry == "merge"))
    asked = check.inputs(random.Random(1))
    lists = [id(arg) for args in asked for arg in args]
    assert len(set(lists)) == len(lists)


def test_reference_leaves_the_arguments_alone(tasks: TaskSet) -> None:
    check = tasks.checks.get(next(f.task_id for f in tasks.fixtures if f.entry == "insertion_sort"))
    args = ([3, 1, 2],)
    outcome = check.expected(args)
    assert args == ([3, 1, 2],)
    assert outcome == Outcome([1, 2, 3], args_after=([1, 2, 3],))
    assert not check.agrees(outcome, Outcome([1, 2, 3], args_after=([3, 1, 2],)))


def test_declared_exception_is_an_answer(tasks: TaskSet) -> None:
    check = tasks.checks.get(next(f.task_id for f in tasks.fixtures if f.entry == "first_index"))
    assert check.expected(([1], 2)).error == "ValueError"
    with pytest.raises(oracle.ReferenceFault):
        check.expected(([1],))


def test_other_catalogue_is_refused_not_used(tasks: TaskSet) -> None:
    check = dataclasses.replace(tasks.checks.get(tasks.fixtures[0].task_id), oracle_digest="sha256:" + "0" * 64)
    with pytest.raises(oracle.OracleMismatch, match="build the task set again"):
        check.inputs(random.Random(1))


def fixed(*cases: Example) -> CheckSet:
    return CheckSet("t", "p", "f", "exact", "E2", len(cases), cases, 0.2, ())


def test_fixed_cases_are_all_asked_and_answered() -> None:
    cases = (*(Example(([i],), i) for i in range(20)), Example(("x",), values.ExceptionName("TypeError")))
    check = fixed(*cases)
    asked = check.inputs(random.Random(3))
    assert len(asked) == 23
    assert {values.dumps(args) for args in asked} == {values.dumps(case.args) for case in cases}
    assert check.expected(([4],)) == Outcome(4)
    assert check.expected(("x",)) == Outcome(error="TypeError")
    assert CheckSet.from_json(json.loads(canonical(check.to_json()))) == check
    with pytest.raises(KeyError):
        check.expected((True,))


def test_bad_declarations_are_refused() -> None:
    with pytest.raises(ValueError, match="neither E2 nor E3"):
        dataclasses.replace(fixed(), evidence="E0")
    with pytest.raises(ValueError, match="unknown comparator"):
        dataclasses.replace(fixed(), comparator="near")


@pytest.mark.parametrize("entry", ["pypi.org", "*.pypi.org:443", "https://pypi.org:443", "10.0.0.0/8:443", 443, None])
def test_hosts_must_be_name_and_port(tasks: TaskSet, entry: object) -> None:
    document = json.loads(tasks.public_document())
    for hosts in ([entry], ["pypi.org:443", entry], entry):
        document["fixtures"][0]["hosts"] = hosts
        with pytest.raises((TypeError, ValueError)):
            Fixture.from_json(document["fixtures"][0])
        with pytest.raises(BadDocument, match="malformed content"):
            load_public(sealed({key: value for key, value in document.items() if key != "digest"}))
    fixture = dataclasses.replace(tasks.fixtures[0], hosts=("pypi.org:443",))
    assert Fixture.from_json(fixture.to_json()) == fixture
    assert fixture.digest != tasks.fixtures[0].digest


def test_failure_text() -> None:
    args = ([1, 2], "a b")
    assert feedback.failure_text(args, Outcome((1,)), Outcome([1])) == "FAIL [1,2],'a b' want (1,) got [1]"
    assert feedback.failure_text(args, Outcome({"k": {2, 1}}), None) == "FAIL [1,2],'a b' want {'k':{1,2}} no answer"
    raised = feedback.failure_text((1,), Outcome(error="ValueError"), Outcome(error="IndexError"))
    assert raised == "FAIL 1 want raise ValueError raises IndexError"
    assert len(feedback.compact("x" * 500)) == feedback.MAX_VALUE_CHARS
