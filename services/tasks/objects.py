"""Linked nodes on the trusted side: plain classes from their declarations, and their flat form for a jail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from services.tasks import values

if TYPE_CHECKING:
    from services.tasks.fixture import ObjectClass

Table = list[tuple[int, list[Any]]]
"""Nodes by number: index of the class in its declaration, and the fields with references in place of nodes."""


class Node:
    """A linked object as generators and references see it: declared fields, compared by identity.

    Make a class with `node_class("Node", ("value", "next"))`, objects with `Node(1)` or `Node(1, next=other)`.
    """

    __slots__ = ("__weakref__",)
    __node_fields__: ClassVar[tuple[str, ...]] = ()

    def __init__(self, *given: Any, **named: Any) -> None:
        """Fields in order or by name; None where nothing is given. Raises TypeError for more than there are."""
        fields = self.__node_fields__
        found = {**dict(zip(fields, given, strict=False)), **named}
        if len(found) != len(given) + len(named) or not found.keys() <= set(fields):
            raise TypeError(f"{type(self).__name__} has the fields {', '.join(fields)}")
        for field in fields:
            setattr(self, field, found.get(field))

    def __deepcopy__(self, memo: dict[int, Any]) -> Node:
        """Without recursion from node to node: a list of a thousand nodes is no deep value."""
        found = [node for node in linked(self) if id(node) not in memo]
        for node in found:
            memo[id(node)] = object.__new__(type(node))
        for node in found:
            for field in node.__node_fields__:
                setattr(memo[id(node)], field, deepcopy(getattr(node, field), memo))
        copied: Node = memo[id(self)]
        return copied

    def __repr__(self) -> str:
        return _text(self, 3)


def _text(value: Any, depth: int) -> str:
    kind = type(value)
    if isinstance(value, Node):
        items, around = [getattr(value, field) for field in value.__node_fields__], f"{kind.__name__}()"
    elif kind in (list, tuple, set, frozenset):
        items, around = list(value), "[]" if kind is list else "()" if kind is tuple else "{}"
    elif kind is dict:
        items, around = [item for pair in value.items() for item in pair], "{}"
    else:
        return repr(value)
    inner = ",".join(_text(item, depth - 1) for item in items[:8]) if depth else "..."
    return f"{around[:-1]}{inner}{around[-1]}"


@cache
def node_class(name: str, fields: tuple[str, ...]) -> type[Node]:
    """The class of nodes called `name` with `fields`; one per name and fields, so that equal declarations agree."""
    return type(name, (Node,), {"__slots__": fields, "__node_fields__": fields})


def schema(classes: Iterable[ObjectClass]) -> values.Schema:
    """What `values.decode` needs to read nodes of the declared classes."""
    return MappingProxyType({kind.name: node_class(kind.name, kind.fields) for kind in classes})


def linked(value: Any) -> list[Node]:
    """Every node that can be reached from `value` through fields and plain containers."""
    found: dict[int, Node] = {}
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Node):
            if id(value) not in found:
                found[id(value)] = value
                waiting += [getattr(value, field) for field in value.__node_fields__]
        elif isinstance(value, list | tuple | set | frozenset):
            waiting += value
        elif isinstance(value, dict):
            waiting += value.keys()
            waiting += value.values()
    return list(found.values())


def packer(classes: Sequence[ObjectClass]) -> Callable[[Any], tuple[Table, Any]] | None:
    """Turns a value into (table, value with references in place of nodes); None where no class is declared.

    A reference to node n is the complex number n + 1j, which no plain value is or equals (the jail's wire is
    `marshal`). Raises values.Unencodable for a node of another class than the declared ones.
    """
    if not classes:
        return None
    indexes = {node_class(kind.name, kind.fields): index for index, kind in enumerate(classes)}

    def pack(value: Any) -> tuple[Table, Any]:
        nodes = linked(value)
        if not nodes:
            return [], value
        numbers = {id(node): number for number, node in enumerate(nodes)}
        table: Table = []
        for node in nodes:
            if type(node) not in indexes:
                raise values.Unencodable(f"nodes of class {type(node).__name__!r} are not declared")
            fields = [_referring(getattr(node, field), numbers) for field in node.__node_fields__]
            table.append((indexes[type(node)], fields))
        return table, _referring(value, numbers)

    return pack


def _referring(value: Any, numbers: dict[int, int]) -> Any:
    if isinstance(value, Node):
        return complex(numbers[id(value)], 1)
    kind = type(value)
    if kind in (list, tuple, set, frozenset):
        return kind(_referring(item, numbers) for item in value)
    if kind is dict:
        return {_referring(key, numbers): _referring(item, numbers) for key, item in value.items()}
    return value
