"""Half of the program inside a jail: the text of an answer, with linked nodes, handles and exceptions as declared.

It is untrusted once the candidate is imported, like the other half (`worker.py`, with which it is one script in the
jail, see `tree.py`), and uses built-in modules only. It writes exactly what `services/tasks/values.py` writes, which a
property test holds it to.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing itself is too slow to import here
    from collections.abc import Iterable
    from typing import Any

MAX_DEPTH = 16
MAX_NODES = 100_000
INT_LIMIT = 10**4300


class Refused(Exception):
    """The value has no encoding."""


def quote(text: str) -> str:
    """JSON string, ASCII only."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return '"' + text + '"'
    out = []
    for char in text:
        code = ord(char)
        if char == '"' or char == "\\":
            out.append("\\" + char)
        elif 32 <= code < 127:
            out.append(char)
        elif char in "\n\r\t\b\f":
            out.append({"\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}[char])
        elif code >= 0x10000:
            code -= 0x10000
            out.append(f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}")
        elif 0xD800 <= code <= 0xDFFF:
            raise Refused
        else:
            out.append(f"\\u{code:04x}")
    return '"' + "".join(out) + '"'


class Space:
    """What a run declares (classes of linked nodes, handles and exceptions), and the objects behind handles."""

    def __init__(self, run: "dict[str, Any]") -> None:
        self.names: tuple[str, ...] = run["names"]
        self.module: Any = None
        self.nodes: list[Any] = []  # class and fields, in the order of the declaration
        self.node_types: dict[int, tuple[str, tuple[str, ...]]] = {}
        self.handle_types: dict[int, str] = {}
        self.error_types: dict[int, str] = {}
        self.iterators: bool = "iterator" in run["handles"]
        self.objects: dict[int, Any] = {}
        self.numbers: dict[int, int] = {}
        self.last = 0

    def declare(self, run: "dict[str, Any]", module: "Any") -> None:
        """Find the declared classes once the candidate is imported; what it puts there later changes nothing."""
        self.module = module
        for name, fields, place in run["objects"]:
            kind = find(load(place), name) if place else node_class(name, fields, module.__name__)
            self.nodes.append(kind)
            self.node_types[id(kind)] = name, fields
        for name in run["handles"]:
            if name != "iterator":
                self.handle_types[id(find(module, name))] = name
        for name in run["errors"]:
            self.error_types[id(find(module, name))] = name

    def handle_name(self, value: "Any") -> "str | None":
        """Name under which an object is handed out, None where it is not."""
        kind = type(value)
        for base in kind.__mro__:
            name = self.handle_types.get(id(base))
            if name is not None:
                return name
        return "iterator" if self.iterators and hasattr(kind, "__next__") else None

    def rebuild(self, table: "list[Any]", value: "Any") -> "Any":
        """The value with nodes and objects in place of the numbers that stand for them."""
        made = [object.__new__(self.nodes[index]) for index, _ in table]

        def filled(value: "Any") -> "Any":
            kind = type(value)
            if kind is complex:
                return made[int(value.real)] if value.imag == 1 else self.objects[int(value.real)]
            if kind is list or kind is tuple or kind is set or kind is frozenset:
                return kind([filled(item) for item in value])
            if kind is dict:
                return {filled(key): filled(item) for key, item in value.items()}
            return value

        for node, (index, fields) in zip(made, table):  # noqa: B905 - same length by construction
            for name, item in zip(self.node_types[id(self.nodes[index])][1], fields):  # noqa: B905 - same
                object.__setattr__(node, name, filled(item))
        return filled(value)


class Encoder:
    """Text of one answer, with its items counted, its nodes by number and the handles that it gives out."""

    def __init__(self, space: "Space") -> None:
        self.space = space
        self.items = 0
        self.order: list[Any] = []
        self.numbers: dict[int, int] = {}
        self.table: list[str] = []
        self.given: list[Any] = []

    def answer(self, value: "Any", args: "tuple[Any, ...] | None" = None) -> str:
        """The whole text: the value, or the pair of value and arguments after the call."""
        if args is None:
            body = self.text(value, 0)
        else:
            after = self.text(args, 1)
            self.write_fields()  # nodes of the arguments have the first numbers
            body = '{"t":[' + self.text(value, 1) + "," + after + "]}"
        self.write_fields()
        if self.table:
            body = '{"g":[[' + ",".join(self.table) + "]," + body + "]}"
        return body

    def write_fields(self) -> None:
        while len(self.table) < len(self.order):
            node = self.order[len(self.table)]
            name, fields = self.space.node_types[id(type(node))]
            texts = [self.text(getattr(node, field), 1) for field in fields]
            self.table.append("[" + quote(name) + ",[" + ",".join(texts) + "]]")

    def raised(self, error: BaseException) -> str:
        """Names of the declared or allow-listed built-in types among the exception's bases that imply the others."""
        found: list[Any] = []
        names = []
        for base in type(error).__mro__:
            name = self.space.error_types.get(id(base))
            if name is None and base.__module__ == "builtins" and base.__name__ in self.space.names:
                name = str(base.__name__)
            if name is not None and not [one for one in found if base in one.__mro__]:
                found.append(base)
                names.append(name)
        return "+".join(names) or "BaseException"

    def foreign(self, value: "Any", kind: type) -> str:
        """An object of a declared class: a node by number, or a handle."""
        if id(kind) in self.space.node_types:
            number = self.numbers.setdefault(id(value), len(self.order))
            if number == len(self.order):
                self.order.append(value)
            return '{"n":"' + str(number) + '"}'
        name = self.space.handle_name(value)
        if name is not None:
            number = self.space.numbers.get(id(value), 0)
            if not number:
                self.space.last = number = self.space.last + 1
                self.space.numbers[id(value)] = number
                self.space.objects[number] = value
                self.given.append(value)
            return '{"h":["' + str(number) + '",' + quote(name) + "]}"
        if isinstance(value, BaseException):
            return '{"e":"' + self.raised(value) + '"}'
        raise Refused

    def take_back(self) -> None:
        """The reply that would have told of these handles is not sent."""
        for value in self.given:
            del self.space.objects[self.space.numbers.pop(id(value))]
        self.space.last -= len(self.given)

    def many(self, values: "Iterable[object]", depth: int) -> "list[str]":
        return [self.text(value, depth + 1) for value in values]

    def text(self, value: "Any", depth: int) -> str:
        self.items += 1
        if self.items > MAX_NODES or depth > MAX_DEPTH:
            raise Refused
        kind = type(value)
        if kind is int:
            if not -INT_LIMIT < value < INT_LIMIT:
                raise Refused
            return '{"i":"' + str(value) + '"}'
        if value is None:
            return "null"
        if kind is bool:
            return "true" if value else "false"
        if kind is str:
            return quote(value)
        if kind is list:
            return "[" + ",".join(self.many(value, depth)) + "]"
        if kind is tuple:
            return '{"t":[' + ",".join(self.many(value, depth)) + "]}"
        if kind is float:
            return '{"f":"' + str(value.hex()) + '"}'
        if kind is dict:
            pairs = ["[" + self.text(k, depth + 1) + "," + self.text(v, depth + 1) + "]" for k, v in value.items()]
            return '{"d":[' + ",".join(pairs) + "]}"
        if kind is set or kind is frozenset:
            met = len(self.order)
            members = sorted(self.many(value, depth))
            if len(self.order) != met:  # a set has no order to number new nodes by
                raise Refused
            return '{"' + ("s" if kind is set else "z") + '":[' + ",".join(members) + "]}"
        if kind is bytes:
            import binascii

            return '{"b":"' + binascii.b2a_base64(value, newline=False).decode("ascii") + '"}'
        return self.foreign(value, kind)


def load(name: str) -> "Any":
    """Import a module by its dotted name."""
    module = __import__(name)
    for part in name.split(".")[1:]:
        module = getattr(module, part)
    return module


def find(place: "Any", name: str) -> "Any":
    """What a dotted name means, from a module or an object on."""
    for part in name.split("."):
        place = getattr(place, part)
    return place


def node_class(name: str, fields: "tuple[str, ...]", module: str) -> type:
    """A plain class of linked nodes beside the candidate."""

    def __init__(self: "Any", *values: "Any") -> None:
        for position, field in enumerate(fields):
            setattr(self, field, values[position] if position < len(values) else None)

    return type(name, (), {"__init__": __init__, "__module__": module})
