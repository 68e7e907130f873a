"""Protects the catalogue: deterministic, every bug real and killed, nothing of a held-out part in training."""

import ast
import inspect
import random
import subprocess
import sys
import time
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.tasks import catalogue, comparators, examples, feedback, strata, values
from services.tasks.bugs import KINDS, bugs
from services.tasks.build import build_catalogue
from services.tasks.confirm import MIN_KILL_RATE, confirm, probes
from services.tasks.examples import make_example_draws, redraw
from services.tasks.fixture import content_digest
from services.tasks.guard import LONG_TICKS, Guarded, Overgrown
from services.tasks.oracle import Oracle
from services.tasks.repair import reference_edit, reference_edits
from services.tasks.taskset import HELDOUT_BUGS, HELDOUT_FAMILIES, TRAIN, TaskSet

# The content of the shipped catalogue. A change here is a change of every number that was measured on it: say so in the
# commit, and print the new ones with `build_catalogue().digest` and `content_digest(...)` as below.
PUBLIC_DIGEST = "sha256:442761ba22b4c5d5c5f76a36fce839280cf84225c22b82a515de6ca34e33aef8"
SEEN_DIGEST = "sha256:9733aaa9cae7759679ce4f8eb0bc9a0e2abb3a84947ad0b35ac651cb71682774"
HIDDEN_DIGEST = "1438a95ca3b5280c5bc3ee9d010c18f98e51effc0718c79d621efdf8a61bd6ae"

PROBLEMS = sorted(catalogue.problems())


@pytest.fixture(scope="module")
def tasks() -> TaskSet:
    return build_catalogue()


def source_of(fixture) -> str:
    return fixture.base_tree["solution.py"]


def test_content_is_the_released_one(tasks: TaskSet) -> None:
    import hashlib

    assert tasks.digest == PUBLIC_DIGEST
    assert hashlib.sha256(tasks.hidden_document()).hexdigest() == HIDDEN_DIGEST


def test_what_a_policy_sees_is_the_released(tasks: TaskSet) -> None:
    """Code, examples, failures and splits, without what only people and the verifier read."""
    hidden = {"check_digest", "domain"}
    seen = [{key: part for key, part in one.to_json().items() if key not in hidden} for one in tasks.fixtures]
    assert content_digest([seen, {name: list(members) for name, members in tasks.splits.items()}]) == SEEN_DIGEST


def test_another_process_builds_the_same() -> None:
    """No dependence on hash seeds, dictionaries of ids, or what ran before."""
    script = "from services.tasks.build import build_catalogue; print(build_catalogue().digest)"
    ran = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={"PYTHONHASHSEED": "77"},
    )
    assert ran.stdout.strip() == PUBLIC_DIGEST


def test_size_and_spread(tasks: TaskSet) -> None:
    assert len(catalogue.problems()) >= 30
    assert len({fixture.family for fixture in tasks.fixtures}) >= 7
    assert len(tasks.split(TRAIN)) >= 300
    assert len(tasks.split(HELDOUT_BUGS)) >= 120
    assert len(tasks.split(HELDOUT_FAMILIES)) >= 150
    assert {fixture.bug_kind for fixture in tasks.split(TRAIN)} == set(KINDS)
    assert max(Counter(fixture.problem for fixture in tasks.fixtures).values()) <= 24


@pytest.mark.parametrize("key", PROBLEMS)
def test_problem_is_small_and_printed_as_python_prints_it(key: str) -> None:
    problem = catalogue.problem(key)
    assert ast.unparse(ast.parse(problem.source)) + "\n" == problem.source
    assert 4 <= len(problem.source.splitlines()) <= 12
    comparators.parse(problem.comparator)


@pytest.mark.parametrize("key", PROBLEMS)
def test_reference_answers_everything_its_generator_draws(key: str) -> None:
    """Within the precondition, in few steps, with encodable values and more than one answer."""
    problem = catalogue.problem(key)
    oracle, guarded = Oracle(problem), Guarded(problem.source, problem.entry)
    answers = Counter()
    for number in range(300):
        args = problem.generate(random.Random(number))
        expected = oracle.answer(args)
        assert comparators.agree(problem.comparator, expected, guarded.ask(args, LONG_TICKS))
        answers[values.dumps(expected.value if expected.error is None else values.ExceptionName(expected.error))] += 1
        values.dumps(args)
    assert len(answers) > 1
    # A constant answer must not have a fair chance over the fresh small inputs of one trial.
    assert max(answers.values()) / 300 < 0.72


@pytest.mark.parametrize("key", PROBLEMS)
@given(seed=st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_generators_are_deterministic(key: str, seed: int) -> None:
    generate = catalogue.problem(key).generate
    assert generate(random.Random(seed)) == generate(random.Random(seed))


def test_unknown_problem() -> None:
    with pytest.raises(catalogue.UnknownProblem):
        catalogue.problem("sorting/bogo_sort")


def test_every_bug_changes_one_line(tasks: TaskSet) -> None:
    for fixture in tasks.fixtures:
        before, after = source_of(fixture).splitlines(), catalogue.problem(fixture.problem).source.splitlines()
        assert len(before) == len(after)
        assert sum(old != new for old, new in zip(before, after, strict=True)) == 1
        assert ast.unparse(ast.parse(source_of(fixture))) + "\n" == source_of(fixture)


def test_every_bug_is_killed_by_its_own_checks(tasks: TaskSet) -> None:
    """Two seeded trials each, as the verifier would ask them; and by fresh inputs alone nearly always."""
    fresh_kills = fresh_trials = 0
    for fixture in tasks.fixtures:
        check = tasks.checks.get(fixture.task_id)
        shown = {values.dumps(example.args) for example in fixture.public_checks}
        buggy = Guarded(source_of(fixture), fixture.entry)
        for seed in range(2):
            failed = []
            for args in check.inputs(random.Random(f"{seed}")):
                try:
                    got = buggy.ask(args, 5 * LONG_TICKS)
                except Overgrown:  # the guard cannot tell
                    continue
                if got is None or not check.agrees(check.expected(args), got):
                    failed.append(values.dumps(args) in shown)
                if not all(failed):
                    break
            assert failed, fixture.task_id
            fresh_trials += 1
            fresh_kills += not all(failed)
    assert fresh_kills / fresh_trials > 0.98


def test_known_bad_trees_fail_and_reference_passes_in_every_trial(tasks: TaskSet) -> None:
    for fixture in tasks.fixtures:
        check = tasks.checks.get(fixture.task_id)
        assert check.known_bad[0] == fixture.base_tree
        assert len(check.known_bad) == 3
        asked = check.inputs(random.Random(11))
        for tree in check.known_bad[1:]:
            namespace: dict = {}
            exec(tree["solution.py"], namespace)
            assert not all(check.agrees(check.expected(args), ask(namespace[fixture.entry], args)) for args in asked)


def ask(function, args):
    try:
        return comparators.Outcome(function(*args), args_after=args)
    except Exception as error:
        return comparators.Outcome(error=values.exception_name(error), args_after=args)


def test_visible_examples_show_the_bug_first(tasks: TaskSet) -> None:
    for fixture in tasks.fixtures:
        assert len(fixture.public_checks) == 4
        assert len({values.dumps(example.args) for example in fixture.public_checks}) == 4
        assert len({values.dumps(example.expected) for example in fixture.public_checks}) > 1
        first = fixture.public_checks[0]
        assert fixture.first_failure.startswith(f"FAIL {feedback.arguments(first.args)} want ")
        for example in fixture.public_checks:
            assert examples.is_short(example.args, example.outcome())


def test_no_source_in_two_splits_and_no_family_on_both_sides(tasks: TaskSet) -> None:
    sources = Counter(source_of(fixture) for fixture in tasks.fixtures)
    assert max(sources.values()) == 1
    held = {fixture.family for fixture in tasks.split(HELDOUT_FAMILIES)}
    known = {fixture.family for split in (TRAIN, HELDOUT_BUGS) for fixture in tasks.split(split)}
    assert held == set(catalogue.HELD_OUT_FAMILIES)
    assert known == set(catalogue.TRAIN_FAMILIES)


def test_no_variant_of_one_problem_on_both_sides() -> None:
    """References are distinct even after renaming everything that has a name."""

    class Anonymous(ast.NodeTransformer):
        def __init__(self) -> None:
            self.names: dict[str, str] = {}

        def name(self, text: str) -> str:
            return self.names.setdefault(text, f"v{len(self.names)}")

        def visit_FunctionDef(self, node):
            node.name = "f"
            return self.generic_visit(node)

        def visit_arg(self, node):
            node.arg = self.name(node.arg)
            return node

        def visit_Name(self, node):
            node.id = self.name(node.id)
            return node

    shapes = {ast.dump(Anonymous().visit(ast.parse(problem.source))) for problem in catalogue.problems().values()}
    assert len(shapes) == len(catalogue.problems())


def test_lines_of_held_out_bugs_have_a_bug_in_training(tasks: TaskSet) -> None:
    """What the split by bug measures is an unseen change of a line whose right form was once a training target."""
    trained = {(fixture.problem, reference_edit(fixture)) for fixture in tasks.split(TRAIN)}
    for fixture in tasks.split(HELDOUT_BUGS):
        assert (fixture.problem, reference_edit(fixture)) in trained


def test_reference_edit_repairs(tasks: TaskSet) -> None:
    edits = list(reference_edits(tasks))
    assert [fixture for fixture, _ in edits] == list(tasks.split(TRAIN))
    for fixture, (number, line) in edits:
        lines = source_of(fixture).splitlines()
        lines[number - 1] = line
        assert "\n".join(lines) + "\n" == catalogue.problem(fixture.problem).source


def test_held_out_families_give_no_repairs(tasks: TaskSet) -> None:
    with pytest.raises(ValueError, match="held out"):
        reference_edit(tasks.split(HELDOUT_FAMILIES)[0])


def test_redraw_shows_the_same_bug_by_other_examples(tasks: TaskSet) -> None:
    differing = 0
    for number, fixture in enumerate(tasks.split(TRAIN)):
        other = redraw(fixture, random.Random(number))
        assert other.public_checks == make_example_draws(fixture, random.Random(number))
        assert other.base_tree == fixture.base_tree
        assert other.check_digest == fixture.check_digest
        assert other.first_failure.startswith("FAIL ")
        differing += other.public_checks != fixture.public_checks
        passing = examples.first_failure(
            catalogue.problem(fixture.problem).source, fixture.entry, fixture.problem, other.public_checks
        )
        assert passing is None
    assert differing > 300


def test_failure_of_a_doubly_wrong_function_is_text() -> None:
    """Supervised traces put a second fault into a bug; even one that never stops growing has an observation."""
    growing = "def squeeze(s):\n    out = s\n    while True:\n        out += out\n    return out\n"
    (check, *_) = build_catalogue().get("strings/squeeze/cmp-000").public_checks
    seen = examples.first_failure(growing, "squeeze", "strings/squeeze", (check,))
    assert seen is not None
    assert seen.endswith("no answer")


def test_equivalent_changes_are_dropped() -> None:
    """`xs[k] < x` against `x > xs[k]` is no bug; neither is a change that shows on too few inputs."""
    problem = catalogue.problem("searching/arg_max")
    inputs = probes(problem, random.Random(1))
    kept = [confirm(problem, bug, inputs) for bug in bugs(problem.source, random.Random(1))]
    assert any(found is None for found in kept)
    assert all(found.kill_rate >= MIN_KILL_RATE for found in kept if found is not None)


def test_bug_generator_is_deterministic_and_never_repeats() -> None:
    for problem in catalogue.problems().values():
        first = list(bugs(problem.source, random.Random(5)))
        assert first == list(bugs(problem.source, random.Random(5)))
        assert len({bug.source for bug in first}) == len(first)
        assert problem.source not in {bug.source for bug in first}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("while True:\n        pass", None),
        ("for x in xs:\n        xs.append(x)", None),
        ("return f(xs)", "RecursionError"),
    ],
)
def test_guard_ends_runaway_functions(body: str, expected: str | None) -> None:
    got = Guarded(f"def f(xs):\n    {body}\n", "f").ask(([1],), 1_500)
    assert (got.error if got is not None else None) == expected


@pytest.mark.parametrize(
    "body",
    [
        "b = 3\n    while True:\n        b = b * b",
        "while True:\n        xs += xs",
        "while True:\n        xs.extend(xs)",
    ],
)
def test_guard_ends_growing_values(body: str) -> None:
    with pytest.raises(Overgrown):
        Guarded(f"def f(xs):\n    {body}\n", "f").ask(([1],), LONG_TICKS)


@pytest.mark.parametrize("key", PROBLEMS)
def test_every_stratum_is_answered_cheaply_and_crosses_the_wire(key: str) -> None:
    """Whoever asks the reference in the verifier's own process must not wait, and every value can be carried."""
    problem = catalogue.problem(key)
    oracle = Oracle(problem)
    assert 80 < len(problem.domain.statement) < 500
    assert len({stratum.name for stratum in problem.domain.strata}) == len(problem.domain.strata) >= 10
    for stratum in problem.domain.strata:
        for seed in range(5):
            args = stratum.draw(random.Random(seed))
            assert values.loads(values.dumps(args)) == args == stratum.draw(random.Random(seed))
            began = time.process_time()
            expected = oracle.answer(args)
            assert time.process_time() - began < 0.05
            assert comparators.agree(problem.comparator, expected, oracle.answer(args))


def test_every_check_run_asks_all_sizes_signs_and_magnitudes(tasks: TaskSet) -> None:
    check = next(tasks.checks.get(fixture.task_id) for fixture in tasks.fixtures if fixture.entry == "insertion_sort")
    for seed in range(20):
        asked = [xs for (xs,) in check.inputs(random.Random(seed))]
        sizes = [len(xs) for xs in asked]
        assert {0, 1} <= set(sizes)
        assert any(12 <= size < 50 for size in sizes)
        assert max(sizes) > 256
        assert any(xs and max(xs) < -(2**64) for xs in asked)
        assert any(xs and len(set(xs)) > len(set(map(float, xs))) for xs in asked)
        assert any(len(xs) > 9 and xs == sorted(xs, reverse=True) for xs in asked)


def test_the_digest_covers_whatever_a_stratum_draws_by() -> None:
    """A change of the text of a problem's module, or of a module of draws, is a change of its check-sets' digest."""
    for key in PROBLEMS:
        problem = catalogue.problem(key)
        modules = {inspect.getmodule(stratum.draw) for stratum in problem.domain.strata}
        assert modules <= {strata, inspect.getmodule(problem.generate)}
