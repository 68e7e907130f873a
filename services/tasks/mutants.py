"""Mutants of a reference: changed programs that a sound check-set rejects, and which of them nothing can tell apart."""

import ast
import copy
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from services.tasks import values
from services.tasks.bench import Bench
from services.tasks.bugs import bugs
from services.tasks.comparators import Outcome
from services.tasks.fixture import CheckSet
from services.tasks.guard import LONG_TICKS, Guarded, Overgrown

CAP = 40
SAMPLE = 2000
"""Inputs on which a mutant must agree with the reference to count as equivalent."""
_TICKS = 10 * LONG_TICKS
_TRUSTED = 64
_SHOWN = 60


@dataclass(frozen=True)
class Mutant:
    """A changed program: what was changed, in words with the line as it is now, and its whole source."""

    what: str
    source: str


def mutants(source: str, rng: Random, cap: int = CAP) -> tuple[Mutant, ...]:
    """Up to `cap` distinct mutants of every function in `source`, kinds of change taken in turn.

    The kinds are those of `bugs` (comparison, arithmetic, constants, boundaries, swaps, variables, returned values),
    and three that no task is made of: a negated condition, a returned None, and a statement left out. Deterministic in
    `source` and the state of `rng`. Raises SyntaxError.
    """
    module = ast.parse(source)
    seen = {ast.unparse(module)}
    by_kind: dict[str, list[Mutant]] = defaultdict(list)
    for owner, position in _functions(module):
        function = owner[position]
        assert isinstance(function, ast.FunctionDef)
        for kind, line, changed in _changes(function, rng):
            owner[position] = changed
            text = ast.unparse(module)
            owner[position] = function
            if text not in seen:
                seen.add(text)
                told = ast.unparse(changed).splitlines()[line - 1].strip()[:_SHOWN]
                by_kind[kind].append(Mutant(f"{kind} in {function.name}, line {line}: {told}", text + "\n"))
    return tuple(_in_turn(list(by_kind.values()), cap))


def _functions(module: ast.Module) -> list[tuple[list[ast.stmt], int]]:
    """Where every function of the module and of its classes stands: (list of statements, position)."""
    bodies = [module.body, *(node.body for node in module.body if isinstance(node, ast.ClassDef))]
    return [(body, at) for body in bodies for at, node in enumerate(body) if isinstance(node, ast.FunctionDef)]


def _in_turn(kinds: list[list[Mutant]], cap: int) -> Iterator[Mutant]:
    left = cap
    while left and any(kinds):
        for kind in [kind for kind in kinds if kind][:left]:
            yield kind.pop(0)
            left -= 1


def _changes(function: ast.FunctionDef, rng: Random) -> Iterator[tuple[str, int, ast.stmt]]:
    """(kind, line within the function as `ast.unparse` prints it, changed function)."""
    text = ast.unparse(function) + "\n"
    for bug in bugs(text, rng):
        yield bug.kind, bug.line, ast.parse(bug.source).body[0]
    printed = ast.parse(text).body[0]
    more = [*_blocks_without_one(printed), *_tests_and_returns(printed)]
    rng.shuffle(more)
    yield from more


def _blocks_without_one(function: ast.stmt) -> Iterator[tuple[str, int, ast.stmt]]:
    for node in ast.walk(function):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if not isinstance(block, list):
                continue
            for at, statement in enumerate(block):
                block[at] = ast.copy_location(ast.Pass(), statement)
                yield "gone", statement.lineno, copy.deepcopy(function)
                block[at] = statement


def _tests_and_returns(function: ast.stmt) -> Iterator[tuple[str, int, ast.stmt]]:
    for node in ast.walk(function):
        if isinstance(node, ast.If | ast.While | ast.IfExp):
            test = node.test
            node.test = ast.UnaryOp(ast.Not(), test)
            yield "negated", test.lineno, copy.deepcopy(function)
            node.test = test
        elif isinstance(node, ast.Return) and node.value is not None:
            value, node.value = node.value, None
            yield "none", node.lineno, copy.deepcopy(function)
            node.value = value


@dataclass(frozen=True)
class Sample:
    """Distinct inputs among `drawn` of a check-set, with its trusted answers."""

    check: CheckSet
    inputs: tuple[tuple[Any, ...], ...]
    answers: tuple[Outcome, ...]
    drawn: int

    @property
    def told(self) -> str:
        """How large it is, in words."""
        return f"{len(self.inputs)} different inputs of {self.drawn} generated ones"

    def agrees(self, at: int, got: Outcome | None) -> bool:
        """Whether `got` is right for input `at` (None: no answer)."""
        return got is not None and self.check.agrees(self.answers[at], got, self.inputs[at])


def draw_sample(check: CheckSet, rng: Random, size: int = SAMPLE) -> Sample:
    """Up to `size` distinct inputs, as trials ask them; fewer where four times as many draws hold no more."""
    found: dict[str, tuple[Any, ...]] = {}
    drawn = 0
    while len(found) < size and drawn < 4 * size:
        for args in check.inputs(rng):
            found.setdefault(values.dumps(args), args)
            drawn += 1
    inputs = tuple(found.values())[:size]
    return Sample(check, inputs, tuple(check.expected(args) for args in inputs), drawn)


def equivalent(check: CheckSet, survivors: Sequence[Mutant], rng: Random) -> tuple[tuple[Mutant, ...], str]:
    """Those of `survivors` that no input of a sample tells from the reference, and how that was decided, in words.

    Fixed cases that a mutant passed prove nothing about it, and values of foreign classes cannot be asked for here: for
    such check-sets no survivor counts as equivalent.
    """
    if check.evidence == "E2" or check.objects or check.hidden_tests is not None or len(check.reference) != 1:
        return (), "equivalence was not decided: no generator of plain values"
    sample = draw_sample(check, rng)
    (reference,) = check.reference.values()
    if not any(_guarded_differs(sample, reference, limit=_TRUSTED)):
        alike = [mutant for mutant in survivors if not any(_guarded_differs(sample, mutant.source))]
        return tuple(alike), f"equal on {sample.told}, asked in the trusted process"
    with Bench() as bench:
        if any(_bench_differs(bench, sample, reference)):
            return (), "equivalence was not decided: the reference itself could not be asked"
        alike = [mutant for mutant in survivors if not any(_bench_differs(bench, sample, mutant.source))]
    return tuple(alike), f"equal on {sample.told}, asked in a process of their own"


def _guarded_differs(sample: Sample, source: str, limit: int | None = None) -> Iterator[bool]:
    """For each input in turn: whether the program answers it otherwise than the trusted answer."""
    try:
        function = Guarded(source, sample.check.entry)
    except Exception:  # it uses more of Python than the guard offers
        yield True
        return
    for at, args in enumerate(sample.inputs[:limit]):
        try:
            yield not sample.agrees(at, function.ask(args, _TICKS))
        except Overgrown:
            yield True


def _bench_differs(bench: Bench, sample: Sample, source: str) -> Iterator[bool]:
    check = sample.check
    yield bench.load(source, check.entry) is not None
    for at, args in enumerate(sample.inputs):
        yield not sample.agrees(at, bench.ask(args, check.comparator, check.call_cpu_s))
