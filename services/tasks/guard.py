"""Bounded runs of our own changed functions in this process: ticks for loops, size limits for values.

The changed functions come from `bugs`, not from a policy: this is a brake for run-away loops, not a sandbox.
"""

import ast
from collections.abc import Callable
from typing import Any

from services.tasks import values
from services.tasks.comparators import Outcome

# First a short leash, since most runs need few steps; a run that ends on it gets the long one before it is endless.
SHORT_TICKS = 120
LONG_TICKS = 4_000
# Above what a loop can add item by item within its ticks, so that only growth by multiples meets it.
MAX_LENGTH = 5 * LONG_TICKS
MAX_INT = 10**7

_SAFE = (abs, chr, dict, enumerate, int, len, list, max, min, ord, range, reversed, set, sorted, str, sum, zip)
_BUILTINS: dict[str, Any] = {item.__name__: item for item in _SAFE} | {"ValueError": ValueError}


_ATOMS = frozenset((int, str, float, bool))


class Overgrown(Exception):
    """A value outgrew the limits: what a real run would do is not known cheaply, so such a change is not used."""


class _Exhausted(BaseException):
    """The run used its ticks. Not an Exception, so that no handler in the function keeps it."""


class Guarded:
    """One function, instrumented so that it can be asked for an answer within a number of ticks."""

    def __init__(self, source: str, entry: str) -> None:
        tree = _Instrument().visit(ast.parse(source))
        ast.fix_missing_locations(tree)
        self._left = 0
        namespace: dict[str, Any] = {"__builtins__": _BUILTINS, "_tick": self._tick, "_watch": self._watch}
        exec(compile(tree, f"<{entry}>", "exec"), namespace)
        self._entry: Callable[..., Any] = namespace[entry]

    def _tick(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise _Exhausted

    def _watch(self, value: Any) -> None:
        kind = type(value)
        if kind is int:
            if not -MAX_INT < value < MAX_INT:
                raise Overgrown
        elif kind in (list, str, dict, set) and len(value) > MAX_LENGTH:
            raise Overgrown

    def ask(self, args: tuple[Any, ...], ticks: int) -> Outcome | None:
        """The outcome for a copy of `args`, or None when it used up its ticks. Raises Overgrown."""
        given = clone(args)
        self._left = ticks
        try:
            value = self._entry(*given)
        except _Exhausted:
            return None
        except Overgrown:
            raise
        except Exception as error:
            return Outcome.raised(values.exception_names(error), given)
        return Outcome(value=value, args_after=given)


def clone(value: Any) -> Any:
    """A deep copy of a plain value; several times faster than copy.deepcopy on small ones."""
    kind = type(value)
    if kind is list:
        return [item if type(item) in _ATOMS else clone(item) for item in value]
    if kind is tuple:
        return tuple([clone(item) for item in value])
    if kind is dict:
        return {key: clone(item) for key, item in value.items()}
    if kind is set:
        return set(value)
    return value


class _Instrument(ast.NodeTransformer):
    """Adds a tick to every function and loop body, and a watch after every statement that can grow a value."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.generic_visit(node)
        node.body.insert(0, _call("_tick"))
        return node

    def visit_For(self, node: ast.For) -> ast.For:
        self.generic_visit(node)
        node.body.insert(0, _call("_tick"))
        return node

    def visit_While(self, node: ast.While) -> ast.While:
        self.generic_visit(node)
        node.body.insert(0, _call("_tick"))
        return node

    def visit_Assign(self, node: ast.Assign) -> list[ast.stmt]:
        return [node, *_watches(node.targets)]

    def visit_AugAssign(self, node: ast.AugAssign) -> list[ast.stmt]:
        return [node, *_watches([node.target])]

    def visit_Expr(self, node: ast.Expr) -> list[ast.stmt]:
        call = node.value
        grown = [call.func.value] if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) else []
        return [node, *_watches(grown)]


def _watches(targets: list[ast.expr]) -> list[ast.stmt]:
    names = [node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)]
    return [_call("_watch", ast.Name(name, ast.Load())) for name in dict.fromkeys(names)]


def _call(name: str, *args: ast.expr) -> ast.stmt:
    return ast.Expr(ast.Call(ast.Name(name, ast.Load()), list(args), []))
