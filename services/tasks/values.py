"""Exact values as tagged JSON: the one format in which arguments and answers cross a trust boundary.

This file imports the standard library only and nothing of ours, so that its text can be shipped into a sandbox
and run there by a bare interpreter. The trusted side decodes with the same file and trusts no field of what it reads.

Format (JSON texts without numbers; what is not in the table is refused):

    None, True, False, str   null, true, false, string       int     {"i": "-12"}      (at most 4300 digits)
    list                     array                           float   {"f": "0x1.8p+1"} (float.hex; inf and nan by name)
    tuple                    {"t": [...]}                    bytes   {"b": "base64"}
    set, frozenset           {"s": [...]}, {"z": [...]}      exception  {"e": "ValueError"} (allow-listed names,
                             several as "KeyError+ValueError")
    dict                     {"d": [[key, value], ...]} in insertion order
    handle                   {"h": ["number", "Class"]}: an object that stays where it is (only where handles are read)

Linked nodes (objects of a class with `__node_fields__`, see `objects.node_class`) make the whole value a graph:
{"g": [[["Class", [field, ...]], ...], value]}, the nodes in a flat table and {"n": "number"} wherever one is met.
Numbers are given on the first visit (the value first, then the fields of node 0, 1, ...), so that equal graphs have
equal texts. A set holds only nodes that were met before it: it has no order to number them by.
"""

import base64
import binascii
import builtins
import json
import re
import types
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

MAX_DEPTH = 16
MAX_NODES = 100_000
MAX_DIGITS = 4300
MAX_CHARS = 1 << 20
MAX_COLLISIONS = 64

# 10 ** 4300 has 14285 bits. Bits are compared before the digits are made: str() of a huge int is quadratic, and its own
# limit can be switched off by the candidate.
_MAX_BITS = 14_285
_INT_LIMIT = 10**MAX_DIGITS
_INT = re.compile(r"-?(?:0|[1-9][0-9]*)\Z", re.ASCII)
_INTS = re.compile(r'\[\{"i":"(?:0|-?[1-9][0-9]{0,99})"\}(?:,\{"i":"(?:0|-?[1-9][0-9]{0,99})"\})*\]\Z', re.ASCII)
"""A list of ints and nothing else, which many answers are: read in a fraction of the time."""
_QUICK_CHARS = 20_000
_NUMBER = re.compile(r"(?:0|[1-9][0-9]{0,5})\Z", re.ASCII)
_HEX_FLOAT = re.compile(r"-?0x[01](?:\.[0-9a-f]{1,13})?p[+-][0-9]{1,4}\Z", re.ASCII)
_FLOAT_NAMES = ("inf", "-inf", "nan")

EXCEPTION_NAMES = (
    "ArithmeticError", "AssertionError", "AttributeError", "BufferError", "EOFError", "Exception", "FileExistsError",
    "FileNotFoundError", "FloatingPointError", "GeneratorExit", "ImportError", "IndexError", "IsADirectoryError",
    "KeyError", "KeyboardInterrupt", "LookupError", "MemoryError", "NameError", "NotADirectoryError",
    "NotImplementedError", "OSError", "OverflowError", "PermissionError", "RecursionError", "RuntimeError",
    "StopAsyncIteration", "StopIteration", "SyntaxError", "SystemExit", "TimeoutError", "TypeError",
    "UnboundLocalError", "UnicodeError", "ValueError", "ZeroDivisionError", "BaseException",
)  # fmt: skip
_EXCEPTIONS = frozenset(EXCEPTION_NAMES)


class ValueCodecError(ValueError):
    """A value or a text is outside the format; the message says which rule it broke."""


class Unencodable(ValueCodecError):
    """The value has a type or a size that the format does not carry."""


class Undecodable(ValueCodecError):
    """The text is not a well-formed encoding (or exceeds a cap)."""


class ExceptionName:
    """An exception as a value: its allow-listed type names and nothing else (no message, no traceback).

    Usually one, `name`; with several bases that do not imply each other, all of these, the first one first.
    """

    __slots__ = ("names",)

    def __init__(self, *names: str) -> None:
        if not names or len(set(names)) != len(names) or not _EXCEPTIONS.issuperset(names):
            raise Unencodable(f"exception name {'+'.join(names)!r} is not allow-listed")
        self.names = names

    @property
    def name(self) -> str:
        return self.names[0]

    def __eq__(self, other: object) -> bool:
        return type(other) is ExceptionName and other.name == self.name

    def __hash__(self) -> int:
        return hash(("ExceptionName", self.name))

    def __repr__(self) -> str:
        return f"ExceptionName({self.name!r})"


def exception_names(error: BaseException) -> tuple[str, ...]:
    """The allow-listed built-in types among the exception's bases, without those that an earlier one implies."""
    found: list[type] = []
    for base in type(error).__mro__:
        known = base.__module__ == "builtins" and base.__name__ in _EXCEPTIONS
        if known and not any(base in one.__mro__ for one in found):
            found.append(base)
    return tuple(base.__name__ for base in found) or ("BaseException",)


def exception_name(error: BaseException) -> str:
    """The first of `exception_names`."""
    return exception_names(error)[0]


def catches(wanted: str, names: tuple[str, ...]) -> bool:
    """Whether `except wanted` takes an exception of these types; all names are allow-listed."""
    return any(issubclass(getattr(builtins, name), getattr(builtins, wanted)) for name in names)


class _Work:
    """One value being read or written: its items counted, its nodes by number."""

    def __init__(self, error: type[ValueCodecError]) -> None:
        self.items = 0
        self.error = error
        self.nodes: list[Any] = []
        self.numbers: dict[int, int] = {}
        self.table: list[Any] = []
        self.handle: Callable[[str, str], Any] | None = None

    def enter(self, depth: int) -> None:
        """Count one item, so that a wide value is refused as surely as a deep one."""
        self.items += 1
        if self.items > MAX_NODES:
            raise self.error(f"more than {MAX_NODES} nodes")
        if depth > MAX_DEPTH:
            raise self.error(f"nested deeper than {MAX_DEPTH}")

    def number(self, node: Any) -> str:
        """The number of a node, a new one on its first visit."""
        known = self.numbers.setdefault(id(node), len(self.nodes))
        if known == len(self.nodes):
            self.nodes.append(node)
        return str(known)

    def write_fields(self) -> None:
        """Write the fields of every node met so far, and of those met thereby."""
        while len(self.table) < len(self.nodes):
            node = self.nodes[len(self.table)]
            fields = [_encode(getattr(node, field, _Work), 1, self) for field in node.__node_fields__]
            self.table.append([type(node).__name__, fields])


def encode(value: Any, drain: bool = False) -> Any:
    """JSON-able form of `value`. With `drain`, a generator at the top is read out and encoded as a list.

    Raises Unencodable: subclasses of the built-in types count as foreign, because their behaviour is not their value.
    """
    work = _Work(Unencodable)
    if drain and type(value) is types.GeneratorType:
        body: Any = []
        for item in value:
            body.append(_encode(item, 1, work))
    else:
        body = _encode(value, 0, work)
    return _whole(body, work)


def encode_answer(value: Any, args: tuple[Any, ...]) -> Any:
    """JSON-able form of the pair (value, arguments after the call); nodes of the arguments have the first numbers."""
    work = _Work(Unencodable)
    after = _encode(args, 1, work)
    work.write_fields()
    return _whole({"t": [_encode(value, 1, work), after]}, work)


def _whole(body: Any, work: _Work) -> Any:
    work.write_fields()
    return {"g": [work.table, body]} if work.table else body


def dumps(value: Any, drain: bool = False) -> str:
    """Canonical text of `value` (ASCII, no spaces, set members in order of their own text)."""
    return to_text(encode(value, drain))


def to_text(node: Any) -> str:
    """Canonical JSON text of an encoded form."""
    return json.dumps(node, separators=(",", ":"), sort_keys=True, ensure_ascii=True)


def _encode(value: Any, depth: int, work: _Work) -> Any:
    work.enter(depth)
    kind = type(value)
    if value is None or kind is bool:
        return value
    if kind is str:
        return _clean(value, Unencodable)
    if kind is int:
        if value.bit_length() > _MAX_BITS or abs(value) >= _INT_LIMIT:
            raise Unencodable(f"int of more than {MAX_DIGITS} digits")
        return {"i": str(value)}
    if kind is float:
        return {"f": value.hex()}
    if kind is bytes:
        return {"b": base64.b64encode(value).decode("ascii")}
    if kind is list:
        return [_encode(item, depth + 1, work) for item in value]
    if kind is tuple:
        return {"t": [_encode(item, depth + 1, work) for item in value]}
    if kind is set or kind is frozenset:
        met = len(work.nodes)
        items = [_encode(item, depth + 1, work) for item in value]
        if len(work.nodes) != met:
            raise Unencodable("a node that is first met in a set has no number")
        return {"s" if kind is set else "z": sorted(items, key=to_text)}
    if kind is dict:
        pairs = [[_encode(k, depth + 1, work), _encode(v, depth + 1, work)] for k, v in value.items()]
        return {"d": pairs}
    if kind is ExceptionName:
        return {"e": "+".join(value.names)}
    if hasattr(kind, "__node_fields__"):
        return {"n": work.number(value)}
    if isinstance(value, BaseException):
        return {"e": "+".join(exception_names(value))}
    raise Unencodable(f"type {kind.__name__[:60]!r} is not carried")


Schema = Mapping[str, type]
"""Name -> class of the linked nodes that may be read; each has `__node_fields__`, the names of its fields."""
NO_NODES: Schema = types.MappingProxyType({})


def decode(node: Any, objects: Schema = NO_NODES, handle: Callable[[str, str], Any] | None = None) -> Any:
    """Value of a JSON-able form made by `encode`. Raises Undecodable.

    `objects`: the nodes that it may hold; `handle` turns number and class name of a handle into a value, or raises
    Undecodable.
    """
    work = _Work(Undecodable)
    work.handle = handle
    if objects and type(node) is dict and list(node) == ["g"]:
        return _decode_graph(node["g"], objects, work)
    return _decode(node, 0, work)


def loads(
    text: str | bytes,
    max_chars: int = MAX_CHARS,
    objects: Schema = NO_NODES,
    handle: Callable[[str, str], Any] | None = None,
) -> Any:
    """Value of a text made by `dumps`. Raises Undecodable for anything else, including raw JSON numbers."""
    if type(text) is str and len(text) <= _QUICK_CHARS and _INTS.match(text):
        return [int(digits) for digits in text[7:-3].split('"},{"i":"')]
    return decode(parse_json(text, max_chars), objects, handle)


def _decode_graph(body: Any, objects: Schema, work: _Work) -> Any:
    if type(body) is not list or len(body) != 2 or type(body[0]) is not list:
        raise Undecodable("a graph is a table and a value")
    table, value = body
    for row in table:
        work.enter(0)
        if type(row) is not list or len(row) != 2 or type(row[0]) is not str or type(row[1]) is not list:
            raise Undecodable("a node is a class name and its fields")
        kind: Any = objects.get(row[0])
        if kind is None or len(kind.__node_fields__) != len(row[1]):
            raise Undecodable(f"no class {row[0][:60]!r} of {len(row[1])} fields is declared")
        work.nodes.append(object.__new__(kind))
    decoded = _decode(value, 0, work)
    for node, row in zip(work.nodes, table, strict=True):
        for field, item in zip(node.__node_fields__, row[1], strict=True):
            setattr(node, field, _decode(item, 1, work))
    return decoded


def parse_json(text: str | bytes, max_chars: int = MAX_CHARS) -> Any:
    """Strict JSON without numbers: no duplicate keys, no NaN or Infinity, no lone surrogates. Raises Undecodable."""
    if len(text) > max_chars:
        raise Undecodable(f"longer than {max_chars} characters")
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        return json.loads(
            text,
            object_pairs_hook=_unique,
            parse_int=_no_number,
            parse_float=_no_number,
            parse_constant=_no_number,
        )
    except ValueCodecError:
        raise
    except RecursionError:
        raise Undecodable(f"nested deeper than {MAX_DEPTH}") from None
    except ValueError as error:
        raise Undecodable(f"not JSON: {str(error)[:120]}") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Undecodable("duplicate key")
    return found


def _no_number(text: str) -> Any:
    raise Undecodable(f"bare number {text[:20]!r}")


def _clean(text: str, error: type[ValueCodecError]) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise error("lone surrogate in text") from None
    return text


def _decode(node: Any, depth: int, work: _Work) -> Any:
    work.enter(depth)
    if node is None or type(node) is bool:
        return node
    if type(node) is str:
        return _clean(node, Undecodable)
    if type(node) is list:
        return [_decode(item, depth + 1, work) for item in node]
    if type(node) is not dict or len(node) != 1:
        raise Undecodable(f"{type(node).__name__} is not a tagged value")
    ((tag, body),) = node.items()
    if tag == "h":
        return _decode_handle(body, work)
    if tag in ("i", "f", "b", "e", "n"):
        if type(body) is not str:
            raise Undecodable(f"tag {tag!r} wants text")
        if tag == "n":
            return _decode_node(body, work)
        return _decode_scalar(tag, body)
    if tag in ("t", "s", "z", "d"):
        if type(body) is not list:
            raise Undecodable(f"tag {tag!r} wants an array")
        return _decode_container(tag, body, depth, work)
    raise Undecodable(f"unknown tag {str(tag)[:20]!r}")


def _decode_node(body: str, work: _Work) -> Any:
    if not _NUMBER.match(body) or int(body) >= len(work.nodes):
        raise Undecodable("no such node")
    return work.nodes[int(body)]


def _decode_handle(body: Any, work: _Work) -> Any:
    if work.handle is None or type(body) is not list or len(body) != 2 or not all(type(part) is str for part in body):
        raise Undecodable("no handle is expected here")
    return work.handle(*body)


def _decode_scalar(tag: str, body: str) -> Any:
    if tag == "i":
        if len(body.lstrip("-")) > MAX_DIGITS:
            raise Undecodable(f"int of more than {MAX_DIGITS} digits")
        if not _INT.match(body) or body == "-0":
            raise Undecodable("malformed int")
        return int(body)
    if tag == "f":
        if body in _FLOAT_NAMES:
            return float(body)
        if not _HEX_FLOAT.match(body):
            raise Undecodable("malformed float")
        try:
            return float.fromhex(body)
        except OverflowError:
            raise Undecodable("float out of range") from None
    if tag == "b":
        try:
            return base64.b64decode(body.encode("ascii"), validate=True)
        except (binascii.Error, UnicodeEncodeError):
            raise Undecodable("malformed base64") from None
    try:
        return ExceptionName(*body.split("+"))
    except Unencodable:
        raise Undecodable("exception name is not allow-listed") from None


def _decode_container(tag: str, body: list[Any], depth: int, work: _Work) -> Any:
    if tag == "t":
        return tuple(_decode(item, depth + 1, work) for item in body)
    if tag == "d":
        return _decode_dict(body, depth, work)
    items = [_decode(item, depth + 1, work) for item in body]
    _require_spread(items)
    found: frozenset[Any] = frozenset(items)
    if len(found) != len(items):
        raise Undecodable("duplicate set member")
    return set(found) if tag == "s" else found


def _decode_dict(body: list[Any], depth: int, work: _Work) -> dict[Any, Any]:
    pairs = []
    for pair in body:
        if type(pair) is not list or len(pair) != 2:
            raise Undecodable("dict wants [key, value] pairs")
        pairs.append((_decode(pair[0], depth + 1, work), _decode(pair[1], depth + 1, work)))
    _require_spread([key for key, _ in pairs])
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Undecodable("duplicate dict key")
    return found


def _require_spread(items: list[Any]) -> None:
    # Numbers of one hash are easily made, and a set of n of them costs n * n / 2 comparisons on this side.
    try:
        hashes = Counter(map(hash, items))
    except TypeError:
        raise Undecodable("unhashable set member or dict key") from None
    if hashes and max(hashes.values()) > MAX_COLLISIONS:
        raise Undecodable(f"more than {MAX_COLLISIONS} set members or dict keys collide")
