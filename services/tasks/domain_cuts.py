"""Domain mutants inside a reference: loops and recursion that end early, numbers as text, division by floats."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from functools import partial

ROUNDS = (1, 2, 3, 5, 7, 10, 20, 50, 100)
LEVELS = (2, 3, 5, 10, 20)

_CUT = """
def _cut(most, items):
    for number, item in enumerate(items):
        if number >= most:
            return
        yield item
"""
_TEXT = """
def _text(value):
    return str(value) if type(value) is int else value
def _as_text(value):
    return repr(value) if type(value) is not str else value
"""
_DEEP = """
def _deep(function, most):
    level = 0
    def inner(*args, **named):
        nonlocal level
        if level > most:
            return 0
        level += 1
        try:
            return function(*args, **named)
        finally:
            level -= 1
    return inner
"""
_COUNTED = """
_most = [0] * {loops}
def _counted(loop, items):
    rounds = 0
    for item in items:
        rounds += 1
        _most[loop] = max(_most[loop], rounds)
        yield item
def _tell(*calls):
    out = []
    for args in calls:
        _most[:] = [0] * {loops}
        try:
            answer = {entry}(*args)
            if hasattr(answer, "__next__"):
                list(answer)
        except Exception:
            pass
        out.append(list(_most))
    return out
"""
TELL = "_tell"
"""Function of a counting program: any number of argument tuples -> for each the most rounds of every loop."""

_ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
_BY_KEY = ("sorted", "min", "max", "sort")


def changed(source: str) -> Iterator[tuple[str, str, str, int, int]]:
    """(kind, in words, whole source, number of the loop or -1, its rounds) of every such change. Raises SyntaxError."""
    module = ast.parse(source)
    for number, loop in enumerate(_loops(module)):
        for most in ROUNDS:
            tree = _with_loop(module, number, partial(_call, "_cut", most), most)
            yield "rounds", f"{_named(loop)} ends after {_times(most)}", _joined(_CUT, tree), number, most
    for name in _recursive(module):
        for most in LEVELS:
            text = _joined(_DEEP, _shallow(module, name, most))
            yield "depth", f"{name} calls itself {most} levels deep at most", text, -1, 0
    for what, tree in _text_orders(module):
        yield "text order", what, _joined(_TEXT, tree), -1, 0
    for what, tree in _float_divisions(module):
        yield "floats", what, ast.unparse(tree) + "\n", -1, 0


def counting(source: str, entry: str) -> str:
    """The same program with a function `TELL`; loops are numbered as in `changed`. Raises SyntaxError."""
    module = ast.parse(source)
    loops = len(_loops(module))
    for number in range(loops):
        module = _with_loop(module, number, partial(_call, "_counted", number), None, number)
    return ast.unparse(module) + _COUNTED.format(loops=loops, entry=entry)


def _joined(helpers: str, tree: ast.Module) -> str:
    """The program with helpers before everything but what must come first."""
    first = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    rest = [node for node in tree.body if node not in first]
    return ast.unparse(ast.Module([*first, *ast.parse(helpers).body, *rest], [])) + "\n"


def _loops(module: ast.AST) -> list[ast.AST]:
    return [node for node in ast.walk(module) if isinstance(node, ast.For | ast.While | ast.comprehension)]


def _named(loop: ast.AST) -> str:
    if isinstance(loop, ast.While):
        return f"while {ast.unparse(loop.test)}"
    assert isinstance(loop, ast.For | ast.comprehension)
    return f"for {ast.unparse(loop.target)} in {ast.unparse(loop.iter)}"


def _times(count: int) -> str:
    return "one round" if count == 1 else f"{count} rounds"


def _call(name: str, *args: ast.expr | int) -> ast.Call:
    given = [ast.Constant(arg) if isinstance(arg, int) else arg for arg in args]
    return ast.Call(ast.Name(name, ast.Load()), given, [])


def _with_loop(
    module: ast.Module, number: int, around: Callable[[ast.expr], ast.expr], most: int | None, counted: int = 0
) -> ast.Module:
    """A copy whose loop of that number is changed: `around` the items, or a counter of rounds for a `while`."""
    tree = copy.deepcopy(module)
    loop = _loops(tree)[number]
    if isinstance(loop, ast.For | ast.comprehension):
        loop.iter = around(loop.iter)
        return tree
    assert isinstance(loop, ast.While)
    name = f"_rounds_{number}"
    begin = ast.parse(f"{name} = {0 if most is None else most}").body
    if most is None:
        text = f"{name} += 1\n_most[{counted}] = max(_most[{counted}], {name})"
        loop.body[:0] = ast.parse(text).body
    else:
        left = ast.parse(f"({name} := {name} - 1) >= 0", mode="eval").body
        loop.test = ast.BoolOp(ast.And(), [left, loop.test])
    for node in ast.walk(tree):
        for block in (getattr(node, field, None) for field in ("body", "orelse", "finalbody")):
            if isinstance(block, list) and loop in block:
                at = block.index(loop)
                block[at:at] = begin
                return tree
    return tree


def _recursive(module: ast.Module) -> list[str]:
    functions = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef)]
    return [
        function.name
        for function in functions
        if any(isinstance(node, ast.Name) and node.id == function.name for node in ast.walk(function))
    ]


def _shallow(module: ast.Module, name: str, most: int) -> ast.Module:
    tree = copy.deepcopy(module)
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody"):
            found = getattr(node, field, None)
            block: list[ast.AST] = found if isinstance(found, list) else []
            for at, item in enumerate(block):
                if isinstance(item, ast.FunctionDef) and item.name == name:
                    block[at + 1 : at + 1] = ast.parse(f"{name} = _deep({name}, {most})").body
                    return tree
    return tree


def _text_orders(module: ast.Module) -> Iterator[tuple[str, ast.Module]]:
    count = sum(_ordered(node) for node in ast.walk(module))
    choices = [{number} for number in range(count)] + ([set(range(count))] if count > 1 else [])
    for chosen in choices:
        tree, number = copy.deepcopy(module), 0
        told = ""
        for node in list(ast.walk(tree)):
            if _ordered(node):
                if number in chosen:
                    told = told or ast.unparse(node)
                    _as_text(node)
                number += 1
        yield ("every comparison" if len(chosen) > 1 else told) + " in the order of text", tree


def _ordered(node: ast.AST) -> bool:
    if isinstance(node, ast.Compare):
        return len(node.ops) == 1 and isinstance(node.ops[0], _ORDER)
    if isinstance(node, ast.Call) and not any(word.arg == "key" for word in node.keywords):
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        return name in _BY_KEY
    return False


def _as_text(node: ast.AST) -> None:
    if isinstance(node, ast.Compare):
        node.left = _call("_text", node.left)
        node.comparators = [_call("_text", node.comparators[0])]
    elif isinstance(node, ast.Call):
        node.keywords.append(ast.keyword("key", ast.Name("_as_text", ast.Load())))


def _float_divisions(module: ast.Module) -> Iterator[tuple[str, ast.Module]]:
    count = sum(
        isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.FloorDiv) for node in ast.walk(module)
    )
    for number in range(count):
        tree = copy.deepcopy(module)
        visitor = _Divide(number)
        yield f"{visitor.told(tree)} through float", visitor.visit(tree)


class _Divide(ast.NodeTransformer):
    """Turns the division of that number, in the order of `ast.walk`, into `int(a / b)`."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._chosen: ast.AST | None = None

    def told(self, tree: ast.Module) -> str:
        found = [
            node for node in ast.walk(tree)
            if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.FloorDiv)
        ]  # fmt: skip
        self._chosen = found[self._number]
        return ast.unparse(self._chosen)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        return _call("int", ast.BinOp(node.left, ast.Div(), node.right)) if node is self._chosen else node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        self.generic_visit(node)
        if node is not self._chosen:
            return node
        left = ast.parse(ast.unparse(node.target), mode="eval").body
        return ast.Assign([node.target], _call("int", ast.BinOp(left, ast.Div(), node.value)), lineno=node.lineno)
