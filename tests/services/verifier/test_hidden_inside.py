"""Hidden pytest files in the candidate's interpreter (E1): a fail is usable; whatever passes is never a reward."""

import random
from dataclasses import replace

import pytest

from services.runtime.errors import UserError
from services.runtime.jail.launcher import JailHost
from services.tasks.fixture import HiddenTests
from services.verifier import trial
from services.verifier.attribution import attribute
from services.verifier.hidden import inside
from services.verifier.hidden import run as hidden
from services.verifier.hidden.inside import Plan
from tests.services.verifier.hidden_cases import ATTACKS, BOUNDS, RIGHT, WRONG, calc_check, check_of, one_file
from tests.services.verifier.hidden_shelf import BROKEN, IDS, SHELF, TESTS

CALC = calc_check("inside")

FORGEABLE = ("forge records on every descriptor", "hard-coded pairs")
"""What passes at E1: who writes the record by the trial's own words, and who knows the answers."""
BY_LUCK = ("read the test file",)
"""What passes where the copy that it reads first is the real one, for every test: one in three each."""


def judged(host: JailHost, source: str, check=CALC, seed: int = 1, path: str = "calc.py"):
    return attribute(trial.run(host, {path: source}, check, seed, BOUNDS))


def test_right_passes_and_wrong_fails(host: JailHost) -> None:
    facts = trial.run(host, {"calc.py": RIGHT}, CALC, 3, BOUNDS)
    assert attribute(facts) == ("pass", "ok")
    assert (facts.wanted, facts.answered, CALC.evidence) == (2, 2, "E1")
    assert judged(host, WRONG) == ("fail", "test_failed")


def test_no_partial_credit_can_be_had(host: JailHost) -> None:
    facts = trial.run(host, {"calc.py": "def add(a, b): return 5"}, CALC, 1, replace(BOUNDS, all_cases=True))
    assert (attribute(facts), facts.right) == (("fail", "test_failed"), None)


@pytest.mark.parametrize("name", [name for name in ATTACKS if name not in BY_LUCK])
def test_attacks_on_the_interpreter_are_found_by_must_fail_copies(host: JailHost, name: str) -> None:
    outcome, cause = judged(host, ATTACKS[name])
    assert outcome == ("pass" if name in FORGEABLE else "fail"), cause
    if name in ("always equal", "patch TestReport", "walk frames"):
        assert cause == "tampered"


def test_a_module_of_classes_with_its_own_tests(host: JailHost) -> None:
    tests = TESTS.replace('== ("mine", 30, 2, 3)', '== ("mine", 30, 2, 3)\n    assert shelf.pages == 30')
    check = check_of(HiddenTests({"tests/test_shelf.py": tests}, "library.shelf", "inside", IDS))
    hidden.require([check])
    assert judged(host, SHELF, check, path="library/shelf.py") == ("pass", "ok")
    assert judged(host, BROKEN["undoes nothing"], check, path="library/shelf.py") == ("fail", "test_failed")


def test_failing_copies_do_not_fill_the_log(host: JailHost) -> None:
    quiet = replace(BOUNDS, limits=replace(BOUNDS.limits, log_bytes=1))
    assert attribute(trial.run(host, {"calc.py": RIGHT + "print('hello')\n"}, CALC, 1, quiet)) == ("pass", "ok")


def test_each_test_has_a_process_of_its_own(host: JailHost) -> None:
    counting = "seen = []\ndef add(a, b):\n    seen.append(a)\n    return a + b if len(seen) <= 3 else 0\n"
    assert judged(host, counting) == ("pass", "ok")


@pytest.mark.parametrize(("source", "cause"), [
    ("def add(a, b):\n    while True: pass", None),
    ("import nothing_of_that_name", "test_missing"),
    ("import os\nwhile True:\n    os.fork()", "processes"),
    ("x = bytearray(400 << 20)\ndef add(a, b): return a + b", "oom"),
    ("import os\ndef add(a, b):\n    for fd in range(3, 64):\n        try: os.write(fd, b'{}' * 9)\n"
     "        except OSError: pass\n    os._exit(0)", "test_record"),
    ("import os, signal\nos.kill(1, signal.SIGKILL)\ndef add(a, b): return 0", "test_failed"),
])  # fmt: skip
def test_misbehaviour_is_the_candidates(host: JailHost, source: str, cause: str | None) -> None:
    hurried = replace(BOUNDS, call_cpu_s=0.05)
    outcome, found = attribute(trial.run(host, {"calc.py": source}, CALC, 1, hurried))
    assert outcome == "fail"
    assert cause in (None, found)


@pytest.mark.parametrize("body", ["pytest.skip()", "pytest.xfail()", "raise SystemExit(0)", "import os; os._exit(0)"])
def test_an_outcome_that_is_no_pass_is_a_fail(host: JailHost, body: str) -> None:
    source = (
        f"import pytest\nfrom calc import add\ndef test_a():\n    assert add(1, 2) == 3\ndef test_b():\n    {body}\n"
    )
    assert judged(host, RIGHT, one_file(source, "test_a", "test_b", mode="inside"))[0] == "fail"


def test_modules_in_another_modules_place_are_not_met_by_the_runner(host: JailHost) -> None:
    tree = {"calc.py": RIGHT, "pytest.py": "raise SystemExit", "random.py": "import os; os._exit(0)", "os.py": "1/0"}
    assert attribute(trial.run(host, tree, CALC, 1, BOUNDS)) == ("pass", "ok")


def test_a_runner_that_is_not_ready_is_infrastructure(host: JailHost, monkeypatch) -> None:
    monkeypatch.setattr(inside.pytest_arguments, "ENVIRONMENT", {"PYTEST_ADDOPTS": "--nonsense"})
    outcome, _ = judged(host, RIGHT)
    assert outcome == "infra"


def test_names_words_and_places_differ_from_trial_to_trial() -> None:
    assert CALC.hidden_tests is not None
    plans = [Plan(CALC.hidden_tests, random.Random(seed)) for seed in range(12)]
    words = [word for plan in plans for word in (*plan.words.values(), *plan.labels.values(), *plan.folders)]
    assert len(set(words)) == len(words)
    assert len({tuple(plan.order) for plan in plans}) > 1
    assert len({plan.separator for plan in plans}) > 1
    places = {
        tuple(plan.folders.index(folder) for (folder, _), _ in sorted(plan.processes, key=lambda one: one[0][1]))
        for plan in plans
    }
    assert len(places) > 2


def test_tests_without_a_literal_to_change_are_refused_at_start() -> None:
    with pytest.raises(UserError, match="literal"):
        hidden.require([one_file("def test_a():\n    assert True\n", "test_a", mode="inside")])
