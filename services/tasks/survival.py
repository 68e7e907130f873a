"""How long domain mutants live under a check-set: which one a check run lets through, how often, and what would tell.

A verdict is pass when all k check runs pass, so a program that one run lets through with probability p lives with p^k:
0.001 at k = 3 is p = 0.1. A mutant counts as killed when no run of `FIRST` lets it through, or at most `SPARED` of
another `SECOND` do. With p = 0.1 or more, P(0 of 36) = 0.9^36 < 0.0226 and P(4 or fewer of 100) < 0.0238 (binomial),
so that a set which lets the mutant live is taken for a good one with probability below 0.047: 95 % confidence. The
bound on p that is written down is Clopper and Pearson's upper one for the runs of the deciding stage.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from random import Random
from typing import Any

from services.runtime.jail import program
from services.tasks import domain_cuts, feedback, values
from services.tasks.bench import Bench
from services.tasks.comparators import Outcome
from services.tasks.domain_mutants import DomainMutant, domain_mutants, evaluated
from services.tasks.fixture import CheckSet
from services.tasks.guard import clone
from services.tasks.widening import widened

VERDICT_RUNS = 3
LIVES = 0.001
"""A set that lets a domain mutant through all of `VERDICT_RUNS` runs with a higher probability is not certified."""
CONFIDENCE = 0.95
FIRST, SECOND, SPARED = 36, 100, 4
_LOOK = 6
"""Check runs whose questions the maker sees."""
_HUNT = 24
"""Further draws of all strata in which an input is looked for that tells what survived from the reference."""
_ENDLESS_S = 0.02
_GROWTH = ("size", "value", "digits", "rounds", "floats", "answer", "window", "ends", "table")
"""Kinds that only ask for more of what fixed cases show; whether other signs or letters may come, no case can say."""
_WIDENED = 4
_WIDER_S = 0.2
_SHOWN = 60
_HUNTED = 400


@dataclass(frozen=True)
class Living:
    """A domain mutant that a check-set lets live: over `runs` runs `passed` let it through.

    `args` are arguments that would kill it, with the right answer and the mutant's (None: no answer in time).
    """

    mutant: DomainMutant
    passed: int
    runs: int
    args: tuple[Any, ...]
    expected: Outcome
    got: Outcome | None

    @property
    def told(self) -> str:
        """What lives, and an input that would kill it, shortened for a terminal."""
        call = _short(feedback.arguments, self.args)
        return (
            f"{self.mutant.what} ({self.passed} of {self.runs} runs let it through); "
            f"({call}) would kill it: right is {_answer(self.expected)}, it says {_answer(self.got)}"
        )


@dataclass(frozen=True)
class Survey:
    """What was found: `made` mutants are `killed`, `equivalent` on the domain, `undecided` or `living`.

    `worst`: upper bound (see the module) on the probability that a killed one lives through `VERDICT_RUNS` runs;
    `kinds`: how many of each kind were killed. `method` says how it was decided.
    """

    made: int = 0
    killed: int = 0
    equivalent: int = 0
    undecided: int = 0
    living: tuple[Living, ...] = ()
    worst: float = 0.0
    kinds: Mapping[str, int] = field(default_factory=dict)
    method: str = ""


def upper_bound(passed: int, runs: int, confidence: float = CONFIDENCE) -> float:
    """Clopper and Pearson's upper bound on a probability after `passed` of `runs`: p with P(X <= passed) = 1 - c."""
    if passed >= runs:
        return 1.0
    low, high = passed / runs, 1.0
    for _ in range(60):
        p = (low + high) / 2
        few = sum(math.comb(runs, n) * p**n * (1 - p) ** (runs - n) for n in range(passed + 1))
        low, high = (p, high) if few > 1 - confidence else (low, p)
    return high


def _short(told: Callable[[Any], str], value: Any) -> str:
    try:
        text = told(value)
    except ValueError:  # Python writes no int of more than 4300 digits
        return "a number of thousands of digits"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN // 2]}…{text[-_SHOWN // 3 :]}"


def _answer(outcome: Outcome | None) -> str:
    if outcome is None:
        return "nothing in time"
    return f"raises {outcome.error}" if outcome.error else _short(feedback.compact, outcome.value)


@cache
def _evaluate(expression: str, over: str) -> Callable[[Any], Any]:
    return evaluated(expression, over)


class _Question:
    """One call with its right outcome, and what was measured of it."""

    def __init__(self, check: CheckSet, args: tuple[Any, ...], text: str, expected: Outcome | None = None) -> None:
        self._check = check
        self.args, self.text = args, text
        self._expected = expected
        self._measures: dict[str, int] = {}
        self.rounds: list[int] | None = None

    @property
    def expected(self) -> Outcome:
        if self._expected is None:
            self._expected = self._check.expected(self.args)
        return self._expected

    def touches(self, mutant: DomainMutant) -> bool:
        """Whether the mutant may answer otherwise than the reference."""
        if mutant.over == "rounds":
            return not mutant.measure or self.rounds is None or self.rounds[int(mutant.measure)] > mutant.beyond
        if mutant.over == "error":
            return self.expected.error is not None
        if mutant.measure not in self._measures:
            raised = mutant.over == "answer" and self.expected.error is not None
            of = self.args if mutant.over == "args" else self.expected.value
            self._measures[mutant.measure] = 0 if raised else _evaluate(mutant.measure, mutant.over)(of)
        return self._measures[mutant.measure] > mutant.beyond


@dataclass
class _Asked:
    """What one mutant did so far; `witness`: the shortest question that it answered wrongly."""

    endless: int = 0
    witness: tuple[_Question, Outcome | None] | None = None


def surveyable(check: CheckSet) -> bool:
    """Whether `survey` can ask for it: plain values of one file's function."""
    return not check.objects and check.hidden_tests is None and len(check.reference) == 1


def survey(check: CheckSet, seed: int = 0, wanted: Callable[[DomainMutant], bool] = lambda mutant: True) -> Survey:
    """Try the domain mutants of the check-set's reference on the questions of its check runs, without sandboxes.

    Mutants and reference run in limited processes of their own. Fixed cases (E2) are asked once, for they are the same
    in every run; what passes them lives where a longer or larger case tells it from the reference.
    Raises what the check-set raises while it makes questions.
    """
    if not surveyable(check):
        return Survey(method="not decided here: hidden tests, linked nodes and several files need the check itself")
    with Bench() as bench, Bench() as sound:
        return _Surveyor(bench, sound, check, seed).survey(wanted)


class _Surveyor:
    """Asks one check-set's questions, each drawn once for all mutants. `sound` runs the reference, `bench` mutants."""

    def __init__(self, bench: Bench, sound: Bench, check: CheckSet, seed: int) -> None:
        self._bench, self._sound, self._check, self._seed = bench, sound, check, seed
        (self._source,) = check.reference.values()
        self._entry = program.locate(check.reference, check.entry)[2]
        self._fixed = check.evidence == "E2"
        self._runs: list[list[_Question]] = []

    def survey(self, wanted: Callable[[DomainMutant], bool]) -> Survey:
        looked = [one for number in range(1 if self._fixed else _LOOK) for one in self._run(number)]
        shown = [(example.args, example.outcome()) for example in self._check.decoys]
        try:
            cases = [(one.args, one.expected) for one in looked]
            made = [mutant for mutant in domain_mutants(self._source, self._entry, cases, shown) if wanted(mutant)]
        except SyntaxError:
            return Survey(method="the reference is no Python")
        states: Counter[str] = Counter()
        kinds: Counter[str] = Counter()
        living, worst = [], 0.0
        for mutant in made:
            state, bound, alive = self._try(mutant)
            states[state] += 1
            if alive is not None:
                living.append(alive)
            if state == "killed":
                kinds[mutant.kind] += 1
                worst = max(worst, bound**VERDICT_RUNS)
        method = f"{FIRST} check runs, and {SECOND} more for what one of them let through"
        if self._fixed:
            method = "fixed cases, asked once; what passed was asked longer and larger ones"
        return Survey(
            len(made), states["killed"], states["equivalent"], states["undecided"], tuple(living), worst, kinds, method
        )

    def _try(self, mutant: DomainMutant) -> tuple[str, float, Living | None]:
        """(state, upper bound on p where it is killed, what lives)."""
        if mutant.over != "answer" and self._bench.load(mutant.source, self._entry) is not None:
            return "undecided", 0.0, None
        asked = _Asked()
        if self._fixed:
            return self._try_fixed(mutant, asked)
        passed = sum(self._passes(mutant, asked, self._run(number)) for number in range(FIRST))
        if not passed:
            return "killed", upper_bound(0, FIRST), None
        runs = FIRST
        if asked.witness is None:
            self._passes(mutant, asked, self._more)
        else:
            passed, runs = 0, SECOND
            for number in range(FIRST, FIRST + SECOND):
                passed += self._passes(mutant, asked, self._run(number))
                if passed > 2 * SPARED:
                    runs = number - FIRST + 1
                    break
            if passed <= SPARED:
                return "killed", upper_bound(passed, SECOND), None
        if asked.witness is None:
            return "equivalent", 0.0, None
        question, got = asked.witness
        return "living", 1.0, Living(mutant, passed, runs, question.args, question.expected, got)

    def _passes(self, mutant: DomainMutant, asked: _Asked, questions: list[_Question]) -> bool:
        """Whether the questions let the mutant through; ends at the first wrong answer."""
        touched = [one for one in questions if one.touches(mutant)]
        touched = touched if mutant.measure else touched[::-1]
        return all(self._right(mutant, asked, question) for question in touched[:_HUNTED])

    def _right(self, mutant: DomainMutant, asked: _Asked, question: _Question) -> bool:
        got = self._got(mutant, asked, question)
        if got is not None and self._check.agrees(question.expected, got, question.args):
            return True
        if asked.witness is None or len(question.text) < len(asked.witness[0].text):
            asked.witness = question, got
        return False

    def _got(self, mutant: DomainMutant, asked: _Asked, question: _Question) -> Outcome | None:
        if mutant.over == "answer":
            value = clone(question.expected.value)
            return replace(question.expected, value=_evaluate(mutant.after, "answer")(value))
        limit = self._check.call_cpu_s
        limit = min(limit, _ENDLESS_S) if asked.endless > 1 else limit
        got = self._bench.ask_text(question.text, self._check.comparator, limit)
        asked.endless += got is None
        return got

    def _run(self, number: int) -> list[_Question]:
        """The distinct questions of one check run, shortest first."""
        while len(self._runs) <= number:
            self._runs.append(self._questions(self._check.inputs(Random(f"domain/{self._seed}/{len(self._runs)}"))))
        return self._runs[number]

    @cached_property
    def _more(self) -> list[_Question]:
        """Questions of the whole domain, whatever of it the check-set asks."""
        from services.tasks.oracle import oracle

        known = oracle(self._check.problem, self._check.oracle_digest)
        rngs = [Random(f"domain/{self._seed}/more/{number}") for number in range(_HUNT)]
        return self._questions([args for rng in rngs for args in (*known.domain.inputs(rng), known.generate(rng))])

    def _questions(self, inputs: list[tuple[Any, ...]]) -> list[_Question]:
        found = {values.dumps(args): args for args in inputs}
        questions = [_Question(self._check, found[text], text) for text in sorted(found, key=len)]
        self._count(questions)
        return questions

    def _count(self, questions: list[_Question]) -> None:
        """Note the rounds of the reference's loops; where they cannot be counted, every cut may show."""
        if self._sound.loaded is None and self._sound.load(self._counting, domain_cuts.TELL) is not None:
            return
        told = self._sound.ask(tuple(one.args for one in questions), "exact", len(questions) * self._check.call_cpu_s)
        if told is not None and told.error is None:
            for one, rounds in zip(questions, told.value, strict=True):
                one.rounds = rounds

    @cached_property
    def _counting(self) -> str:
        try:
            return domain_cuts.counting(self._source, self._entry)
        except SyntaxError:
            return ""

    def _try_fixed(self, mutant: DomainMutant, asked: _Asked) -> tuple[str, float, Living | None]:
        if not self._passes(mutant, asked, self._run(0)):
            return "killed", 0.0, None
        if mutant.kind in _GROWTH and not self._passes(mutant, asked, self._wider):
            assert asked.witness is not None
            question, got = asked.witness
            return "living", 1.0, Living(mutant, 1, 1, question.args, question.expected, got)
        return "undecided", 0.0, None

    @cached_property
    def _wider(self) -> list[_Question]:
        """Longer and larger arguments than those of the fixed cases, as the reference answers them without raising."""
        found = [args for one in self._run(0)[-_WIDENED:] for args in widened(one.args)]
        right, silent = [], 0
        with Bench() as bench:
            bench.load(self._source, self._entry)
            for args in found:
                expected = bench.ask(args, self._check.comparator, min(self._check.call_cpu_s, _WIDER_S))
                silent += expected is None
                if silent > _WIDENED:
                    break
                if expected is not None and expected.error is None and self._check.agrees(expected, expected, args):
                    right.append(_Question(self._check, args, values.dumps(args), expected))
        self._count(right)
        return right
