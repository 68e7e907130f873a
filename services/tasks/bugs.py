"""Bug generator: one-line changes of a reference over its syntax tree, each of a named kind."""

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

KINDS = ("cmp", "init", "const", "op", "off", "swap", "miss", "var", "ret")

_CMP: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_BINARY: dict[type[ast.operator], tuple[type[ast.operator], ...]] = {
    ast.Add: (ast.Sub, ast.Mult),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Add,),
    ast.FloorDiv: (ast.Mod, ast.Sub),
    ast.Mod: (ast.FloorDiv, ast.Add),
}
_CALLS = {"min": "max", "max": "min"}
_TEXTS = {"+": "-", "-": "+", "(": ")", ")": "("}

# The catalogue names its variables by what they hold, so a wrong variable can be a plausible one.
_SHAPES = (("xs", "ys", "es", "out", "t", "d", "g"), ("i", "j", "k", "n", "m", "a", "b", "x", "y"), ("s", "p", "c"))


@dataclass(frozen=True)
class Bug:
    """A changed function: its kind, the 1-based line that changed, and the source as `ast.unparse` prints it."""

    kind: str
    line: int
    source: str


@dataclass(frozen=True)
class _Proposal:
    kind: str
    node: ast.expr | ast.stmt
    text: str


def bugs(source: str, rng: Random) -> Iterator[Bug]:
    """Every distinct one-line bug of `source` (one function as `ast.unparse` prints it), kinds taken in turn.

    Deterministic in `source` and the state of `rng`. Whether a change matters is for the caller to confirm.
    """
    seen = {source}
    by_kind: dict[str, list[_Proposal]] = {kind: [] for kind in KINDS}
    for proposal in _proposals(ast.parse(source)):
        by_kind[proposal.kind].append(proposal)
    for found in by_kind.values():
        rng.shuffle(found)
    while any(by_kind.values()):
        for kind in KINDS:
            if not by_kind[kind]:
                continue
            bug = _applied(source, by_kind[kind].pop())
            if bug is not None and bug.source not in seen:
                seen.add(bug.source)
                yield bug


def _applied(source: str, proposal: _Proposal) -> Bug | None:
    """The bug that a proposal makes, or None where it changes nothing, breaks the syntax, or moves other lines."""
    node = proposal.node
    lines = source.splitlines()
    old = lines[node.lineno - 1]
    text = proposal.text if isinstance(node, ast.stmt) else f"({proposal.text})"
    lines[node.lineno - 1] = old[: node.col_offset] + text + old[node.end_col_offset :]
    try:
        changed = ast.unparse(ast.parse("\n".join(lines))) + "\n"
    except SyntaxError:
        return None
    before, after = source.splitlines(), changed.splitlines()
    different = [i for i, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]]
    if len(before) != len(after) or len(different) != 1:
        return None
    return Bug(proposal.kind, different[0] + 1, changed)


def _proposals(tree: ast.Module) -> Iterator[_Proposal]:
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    names = _local_names(function)
    for node in ast.walk(function):
        if isinstance(node, ast.stmt) and node is not function:
            yield from _of_statement(node, parents)
        elif isinstance(node, ast.expr):
            parent = parents[node]
            yield from _of_expression(node, parent, _in_first_value(node, parents))
            yield from _of_position(node, parent)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                yield from _wrong_variable(node, parent, names)


def _local_names(function: ast.FunctionDef) -> list[str]:
    """Parameters and assigned names in order of appearance."""
    found = [argument.arg for argument in function.args.args]
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id not in found:
            found.append(node.id)
    return found


def _in_first_value(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    """Whether the node is part of an assignment outside any loop: an initial value."""
    assigned = False
    while node in parents:
        node = parents[node]
        assigned = assigned or isinstance(node, ast.Assign)
        if isinstance(node, ast.For | ast.While):
            return False
    return assigned


def _of_statement(node: ast.stmt, parents: dict[ast.AST, ast.AST]) -> Iterator[_Proposal]:
    if isinstance(node, ast.AugAssign):
        target, value = ast.unparse(node.target), ast.unparse(node.value)
        for operator in _BINARY.get(type(node.op), ()):
            other = copy.copy(node)
            other.op = operator()
            yield _Proposal("op", node, ast.unparse(other))
        yield _Proposal("op", node, f"{target} = {value}")
    nested = isinstance(parents[node], ast.For | ast.While | ast.If)
    if nested and isinstance(node, ast.AugAssign | ast.Assign | ast.Expr):
        yield _Proposal("miss", node, "pass")


def _of_expression(node: ast.expr, parent: ast.AST, first: bool) -> Iterator[_Proposal]:
    if isinstance(node, ast.Constant):
        if not isinstance(parent, ast.UnaryOp):
            yield from _of_constant(node, parent, first)
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        for comparison in _CMP.get(type(node.ops[0]), ()):
            compared = copy.copy(node)
            compared.ops = [comparison()]
            yield _Proposal("cmp", node, ast.unparse(compared))
    elif isinstance(node, ast.BoolOp):
        joined = copy.copy(node)
        joined.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield _Proposal("op", node, ast.unparse(joined))
        for value in node.values:
            kept = copy.copy(node)
            kept.values = [other for other in node.values if other is not value]
            yield _Proposal("miss", node, ast.unparse(kept if len(kept.values) > 1 else kept.values[0]))
    elif isinstance(node, ast.UnaryOp):
        yield from _of_sign(node, parent, first)
    elif isinstance(node, ast.BinOp):
        yield from _of_binary(node)
    elif isinstance(node, ast.IfExp):
        test, body, orelse = map(ast.unparse, (node.test, node.body, node.orelse))
        yield _Proposal("miss", node, body)
        yield _Proposal("miss", node, orelse)
        yield _Proposal("swap", node, f"{orelse} if {test} else {body}")
    elif isinstance(node, ast.Call):
        yield from _of_call(node)
    elif isinstance(node, ast.Tuple) and isinstance(parent, ast.Assign) and parent.value is node:
        yield _Proposal("swap", node, ", ".join(ast.unparse(item) for item in reversed(node.elts)))
    elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice) and isinstance(node.ctx, ast.Load):
        kind = "ret" if isinstance(parent, ast.Return) else "miss"
        yield _Proposal(kind, node, ast.unparse(node.value))


def _of_sign(node: ast.UnaryOp, parent: ast.AST, first: bool) -> Iterator[_Proposal]:
    yield _Proposal("miss", node, ast.unparse(node.operand))
    if isinstance(node.operand, ast.Constant) and isinstance(node.operand.value, int):
        kind = "ret" if isinstance(parent, ast.Return) else "init" if first else "const"
        yield _Proposal(kind, node, "0")
        yield _Proposal(kind, node, str(-node.operand.value - 1))


def _of_constant(node: ast.Constant, parent: ast.AST, first: bool) -> Iterator[_Proposal]:
    value = node.value
    kind = "ret" if isinstance(parent, ast.Return) else "init" if first else "const"
    if isinstance(value, bool):
        yield _Proposal(kind, node, str(not value))
    elif isinstance(value, int):
        yield _Proposal(kind, node, str(value + 1))
        if value > 0 or isinstance(parent, ast.Assign | ast.Call | ast.Return):
            yield _Proposal(kind, node, str(value - 1))
        if value > 2:
            yield _Proposal(kind, node, str(value + 2))
    elif isinstance(value, str) and value in _TEXTS:
        yield _Proposal(kind, node, repr(_TEXTS[value]))


def _of_binary(node: ast.BinOp) -> Iterator[_Proposal]:
    left, right = ast.unparse(node.left), ast.unparse(node.right)
    if isinstance(node.left, ast.List) or isinstance(node.right, ast.List):
        return
    for operator in _BINARY.get(type(node.op), ()):
        other = copy.copy(node)
        other.op = operator()
        yield _Proposal("op", node, ast.unparse(other))
    if isinstance(node.op, ast.Sub | ast.FloorDiv | ast.Mod) or not isinstance(node.right, ast.Constant):
        swapped = copy.copy(node)
        swapped.left, swapped.right = node.right, node.left
        yield _Proposal("swap", node, ast.unparse(swapped))
    unit = isinstance(node.right, ast.Constant) and node.right.value == 1
    if isinstance(node.op, ast.Add | ast.Sub):
        yield _Proposal("off" if unit else "miss", node, left)
        if not unit:
            yield _Proposal("miss", node, right)


def _of_call(node: ast.Call) -> Iterator[_Proposal]:
    if isinstance(node.func, ast.Name) and node.func.id in _CALLS:
        other = copy.copy(node)
        other.func = ast.Name(_CALLS[node.func.id], ast.Load())
        yield _Proposal("op", node, ast.unparse(other))
    if len(node.args) >= 2:
        swapped = copy.copy(node)
        swapped.args = [node.args[1], node.args[0], *node.args[2:]]
        yield _Proposal("swap", node, ast.unparse(swapped))
        shorter = copy.copy(node)
        shorter.args = node.args[1:]
        yield _Proposal("miss", node, ast.unparse(shorter))


def _of_position(node: ast.expr, parent: ast.AST) -> Iterator[_Proposal]:
    """One too many or too few where an expression is an index, a bound, a range limit or a counted answer."""
    index = isinstance(parent, ast.Subscript) and parent.slice is node and not isinstance(node, ast.Slice)
    bound = isinstance(parent, ast.Slice)
    limit = isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name) and parent.func.id == "range"
    measured = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len"
    if isinstance(node, ast.Constant | ast.UnaryOp) or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)):
        return
    if index or bound or (limit and node in getattr(parent, "args", ())) or measured:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            return
        yield _Proposal("off", node, ast.unparse(node) + " + 1")
        yield _Proposal("off", node, ast.unparse(node) + " - 1")


def _wrong_variable(node: ast.Name, parent: ast.AST, names: list[str]) -> Iterator[_Proposal]:
    if node.id not in names:
        return
    kind = "ret" if isinstance(parent, ast.Return) else "var"
    shape = next((shape for shape in _SHAPES if node.id in shape), ())
    for other in names:
        if other != node.id and other in shape:
            yield _Proposal(kind, node, other)
