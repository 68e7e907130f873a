"""The program inside a jail: imports the candidate and answers calls over two pipes.

Everything in this process is untrusted from the moment that the candidate is imported, this loader included: it only
ever *claims* answers. It uses built-in modules only, because a jail's start-up is the system's main cost (json, re and
typing would more than double it); its encoder writes exactly what `services/tasks/values.py` writes, which a property
test holds it to.

Requests (fd 0): 4 bytes length (little endian) + marshal data, made by the trusted side.
Replies (fd 1): 4 bytes length + 32 characters request id + 1 character kind + text.
Kinds: b boot, y ready, e import failed, r returned, x raised, u cannot be encoded, l CPU limit, d run is over.
"""

import _signal  # type: ignore[import-not-found]  # built in, cheaper than `signal`; typeshed lacks it
import marshal
import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing itself is too slow to import here
    from collections.abc import Callable, Iterable, Mapping
    from types import FrameType
    from typing import Any, NoReturn

HOME = "/tmp/tree"
MAX_DEPTH = 16
MAX_NODES = 100_000
INT_LIMIT = 10**4300
GENERATOR = type(_ for _ in ())
SIGPROF = 27


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


class Encoder:
    """Text of one value, with its nodes counted."""

    def __init__(self, names: "tuple[str, ...]") -> None:
        self.names = names
        self.nodes = 0

    def raised(self, error: BaseException) -> str:
        """Name of the first allow-listed built-in type among the exception's bases."""
        for base in type(error).__mro__:
            if base.__module__ == "builtins" and base.__name__ in self.names:
                return str(base.__name__)
        return "BaseException"

    def many(self, values: "Iterable[object]", depth: int) -> "list[str]":
        return [self.text(value, depth + 1) for value in values]

    def text(self, value: "Any", depth: int) -> str:
        self.nodes += 1
        if self.nodes > MAX_NODES or depth > MAX_DEPTH:
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
        if kind is set:
            return '{"s":[' + ",".join(sorted(self.many(value, depth))) + "]}"
        if kind is frozenset:
            return '{"z":[' + ",".join(sorted(self.many(value, depth))) + "]}"
        if kind is bytes:
            import binascii

            return '{"b":"' + binascii.b2a_base64(value, newline=False).decode("ascii") + '"}'
        if isinstance(value, BaseException):
            return '{"e":"' + self.raised(value) + '"}'
        raise Refused


def write_all(fd: int, data: bytes) -> None:
    while data:
        data = data[posix.write(fd, data) :]


def reply(fd: int, ident: str, kind: str, text: str = "") -> None:
    raw = (ident + kind + text).encode("ascii", "replace")
    write_all(fd, len(raw).to_bytes(4, "little") + raw)


def read_exactly(fd: int, count: int) -> bytes:
    parts = []
    while count:
        part = posix.read(fd, count)
        if not part:
            posix._exit(0)
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def read_frame(fd: int) -> "Any":
    return marshal.loads(read_exactly(fd, int.from_bytes(read_exactly(fd, 4), "little")))


def lay_out(files: "Mapping[str, bytes]") -> None:
    """Write the candidate's tree and put it first on the path."""
    made: set[str] = set()
    for path, text in files.items():
        parts = path.split("/")
        for depth in range(len(parts)):
            folder = "/".join([HOME, *parts[:depth]])
            if folder not in made:
                made.add(folder)
                try:  # noqa: SIM105 - contextlib is not imported here
                    posix.mkdir(folder)
                except FileExistsError:
                    pass
        fd = posix.open(HOME + "/" + path, posix.O_WRONLY | posix.O_CREAT | posix.O_TRUNC)
        write_all(fd, text)
        posix.close(fd)
    sys.path.insert(0, HOME)


def load(run: "dict[str, Any]", out: int) -> "Callable[..., object] | None":
    """Import the candidate and find its function; None after an `e` reply."""
    try:
        module = __import__(run["module"])
        for part in run["module"].split(".")[1:]:
            module = getattr(module, part)
        function: Callable[..., object] = getattr(module, run["function"])
    except BaseException as error:
        line = error.lineno if isinstance(error, SyntaxError) else None
        reply(out, run["id"], "e", Encoder(run["names"]).raised(error) + " " + str(line or 0))
        return None
    reply(out, run["id"], "y")
    return function


def answer(
    function: "Callable[..., object]", run: "dict[str, Any]", out: int, ident: str, args: "tuple[Any, ...]", timed: bool
) -> None:
    """One call, one reply."""
    encoder = Encoder(run["names"])
    if timed:
        run["current"] = ident
        _signal.setitimer(_signal.ITIMER_PROF, run["call_cpu_s"])
    kind = "r"
    try:
        value = function(*args)
        if run["drain"] and type(value) is GENERATOR:
            value = list(value)
    except BaseException as error:
        kind, value = "x", error
    try:
        text = encoder.text(value, 1 if run["want_args"] else 0)
        if run["want_args"]:
            text = '{"t":[' + text + "," + encoder.text(args, 1) + "]}"
    except BaseException:  # an object that resists being looked at has no encoding either
        kind, text = "u", ""
    reply(out, ident, kind, text)


def trial(run: "dict[str, Any]", source: int, out: int) -> None:
    """One trial in this very process: the jail is thrown away afterwards."""

    def late(number: int, frame: "FrameType | None") -> "NoReturn":
        reply(out, run["current"], "l")
        posix._exit(0)

    run["current"] = run["id"]
    lay_out(run["files"])
    _signal.signal(SIGPROF, late)
    _signal.setitimer(_signal.ITIMER_PROF, run["import_cpu_s"])
    function = load(run, out)
    if function is None:
        posix._exit(0)
    for ident, args in read_frame(source):
        answer(function, run, out, ident, args, True)
    read_frame(source)


def serve(source: int, out: int) -> None:
    """Fork server: this process never runs candidate code, each run is a child that is gone before the next."""
    while True:
        run = read_frame(source)
        child = posix.fork()
        if child == 0:
            try:
                posix.close(source)
                _signal.setitimer(_signal.ITIMER_PROF, run["run_cpu_s"])  # default action: the kernel ends the process
                lay_out(run["files"])
                function = load(run, out)
                if function is not None:
                    for ident, args in run["calls"]:
                        answer(function, run, out, ident, args, False)
            finally:
                posix._exit(0)
        status = posix.waitpid(child, 0)[1]
        try:  # noqa: SIM105
            posix.kill(-1, 9)
        except ProcessLookupError:
            pass
        try:
            while True:
                posix.waitpid(-1, 0)
        except ChildProcessError:
            pass
        reply(out, run["id"], "d", str(posix.WTERMSIG(status)) if posix.WIFSIGNALED(status) else "0")


def main() -> None:
    source = posix.dup(0)
    out = posix.dup(1)
    unused, closed = posix.pipe()
    posix.dup2(unused, 0)
    posix.dup2(2, 1)
    posix.close(unused)
    posix.close(closed)
    hello = read_frame(source)
    if hello["processes"]:  # no control group bounds them
        import resource

        resource.setrlimit(resource.RLIMIT_NPROC, (hello["processes"], hello["processes"]))
    reply(out, hello["boot"], "b")
    if hello["serve"]:
        serve(source, out)
    else:
        trial(read_frame(source), source, out)
    posix._exit(0)


if __name__ == "__main__":
    main()
