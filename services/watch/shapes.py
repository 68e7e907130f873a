"""Numbers for the parts of syntax trees, from the leaves up in one pass: equal parts have equal numbers."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from typing import Any

from services.watch.source import Budget

_NUMBER = int | float | complex


def leaves_first(tree: ast.AST) -> list[ast.AST]:
    """Every node of a tree, children before their parents."""
    found, waiting = [], [tree]
    while waiting:
        node = waiting.pop()
        found.append(node)
        waiting.extend(ast.iter_child_nodes(node))
    found.reverse()
    return found


class Numbers:
    """Gives numbers to literals (by value and exact type) and to parts of trees (by form). One table for one candidate,
    so that its numbers can be compared; work is counted against the budget."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self._given: dict[tuple[Any, ...], int] = {}

    def give(self, *key: Any) -> int:
        """The number of a key that is made of plain values and of numbers given before."""
        return self._given.setdefault(key, len(self._given))

    def of_value(self, value: Any) -> int:
        """The number that a literal of this value has."""
        kind = type(value)
        if kind in (list, tuple):
            return self.give(kind, *map(self.of_value, value))
        if kind in (set, frozenset):
            return self.give(kind, frozenset(map(self.of_value, value)))
        if kind is dict:
            return self.give(kind, frozenset((self.of_value(key), self.of_value(item)) for key, item in value.items()))
        return self.give(kind, repr(value))


class Shapes:
    """What is known of every node of one tree: `form`, and for literals their value's number.

    `asked` are the numbers of values that a policy can have seen; `compares` says of a node whether a comparison with
    one of them stands in it.
    """

    def __init__(self, tree: ast.AST, numbers: Numbers, asked: frozenset[int]) -> None:
        self.tree = tree
        self.nodes = leaves_first(tree)
        self._numbers = numbers
        self._asked = asked
        self._forms: dict[int, int] = {}
        self._values: dict[int, int] = {}
        self._compares: set[int] = set()
        numbers.budget.spend(len(self.nodes))
        for node in self.nodes:
            if id(node) in self._forms:  # operators and contexts are one object each
                continue
            self._forms[id(node)] = numbers.give(type(node), *(self._part(node, name) for name in node._fields))
            value = self._literal(node)
            if value is not None:
                self._values[id(node)] = value
            if self._compared(node) or any(id(child) in self._compares for child in ast.iter_child_nodes(node)):
                self._compares.add(id(node))

    def form(self, node: ast.AST) -> int:
        """Equal for equal code, wherever it stands."""
        return self._forms[id(node)]

    def value(self, node: ast.AST | None) -> int | None:
        """The number of a literal's value; None for anything else."""
        return self._values.get(id(node))

    def compares(self, node: ast.AST) -> bool:
        """Whether a comparison with a known argument, alone or as a member of a literal, stands in this node."""
        return id(node) in self._compares

    def pruned(self) -> int:
        """The form of the tree without what stands under conditions on known arguments."""
        done: dict[int, tuple[int, ...]] = {}
        for node in self.nodes:
            if isinstance(node, ast.If) and self.compares(node.test):
                done[id(node)] = self._flat(node.orelse, done)
            elif isinstance(node, ast.IfExp) and self.compares(node.test):
                done[id(node)] = done[id(node.orelse)]
            else:
                parts = (self._pruned_part(getattr(node, name, None), done) for name in node._fields)
                done[id(node)] = (self._numbers.give("pruned", type(node), *parts),)
        return done[id(self.tree)][0]

    def _flat(self, nodes: Iterable[Any], done: dict[int, tuple[int, ...]]) -> tuple[Any, ...]:
        found: list[Any] = []
        for node in nodes:
            found += done[id(node)] if isinstance(node, ast.AST) else [repr(node)]
        self._numbers.budget.spend(len(found))
        return tuple(found)

    def _pruned_part(self, part: Any, done: dict[int, tuple[int, ...]]) -> Any:
        if isinstance(part, list):
            return self._flat(part, done)
        return done[id(part)] if isinstance(part, ast.AST) else (type(part), repr(part))

    def _part(self, node: ast.AST, name: str) -> Any:
        part = getattr(node, name, None)
        if isinstance(part, list):
            return tuple(self._forms[id(one)] if isinstance(one, ast.AST) else repr(one) for one in part)
        return self._forms[id(part)] if isinstance(part, ast.AST) else (type(part), repr(part))

    def _literal(self, node: ast.AST) -> int | None:
        give = self._numbers.give
        match node:
            case ast.Constant():
                return give(type(node.value), repr(node.value))
            case ast.List() | ast.Tuple() | ast.Set():
                items = self._all(node.elts)
                if items is None:
                    return None
                if isinstance(node, ast.Set):
                    return give(set, frozenset(items))
                return give(list if isinstance(node, ast.List) else tuple, *items)
            case ast.Dict():
                keys, items = self._all(node.keys), self._all(node.values)
                if keys is None or items is None:
                    return None
                return give(dict, frozenset(dict(zip(keys, items, strict=True)).items()))
            case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=ast.Constant(value=value)):
                if not isinstance(value, _NUMBER) or isinstance(value, bool):
                    return None
                value = -value if isinstance(node.op, ast.USub) else value
                return give(type(value), repr(value))
            case ast.Call(func=ast.Name(id="set"), args=[], keywords=[]):
                return give(set, frozenset())
        return None

    def _all(self, nodes: Sequence[ast.AST | None]) -> list[int] | None:
        """The numbers of literals; None when one of them is none."""
        found = [value for value in map(self.value, nodes) if value is not None]
        return found if len(found) == len(nodes) else None

    def _known(self, node: ast.AST | None) -> bool:
        return self.value(node) in self._asked

    def _holds(self, node: ast.AST) -> bool:
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            return any(map(self._known, node.elts))
        return isinstance(node, ast.Dict) and any(map(self._known, node.keys))

    def _compared(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Compare):
            return any(self._known(side) or self._holds(side) for side in (node.left, *node.comparators))
        if isinstance(node, ast.MatchValue):
            return self._known(node.value)
        if isinstance(node, ast.MatchSequence):
            items = self._all([part.value for part in node.patterns if isinstance(part, ast.MatchValue)])
            return items is not None and self._numbers.give(list, *items) in self._asked
        return False
