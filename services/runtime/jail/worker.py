"""The program inside a jail: imports the candidate and answers calls over two pipes.

In a jail this file follows `encoder.py` in one script (see `tree.py`), so that one start is one file to read; where
hosts can be reached, `forwarder.py` too, which only a run of the fork server starts: an assessment has no hosts.

Everything in this process is untrusted from the moment that the candidate is imported, this loader included: it only
ever *claims* answers. It uses built-in modules only, because a jail's start-up is the system's main cost (json, re and
typing would more than double it).

Requests (fd 0): 4 bytes length (little endian) + marshal data, made by the trusted side. First what to run, then one
call or a list of calls at a time: (id, operation, handle, name, arguments, named arguments, table of linked nodes).
Each has a reply and a limit of its own. The complex number
n + 1j stands for node n, n + 2j for the object behind handle n: no plain value has that type or equals one.
Operations: c call, m call a method, g get, s set, o operator or built-in, x leave a context, f forget a handle.
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

    from services.runtime.jail.encoder import MAX_NODES, Encoder, Refused, Space, find, load
    from services.runtime.jail.forwarder import start_forwarder

HOME = "/tmp/tree"
GENERATOR = type(_ for _ in ())
SIGPROF = 27


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


def begin(run: "dict[str, Any]", space: Space, out: int) -> "tuple[Callable[..., object] | None] | None":
    """Import the candidate and find its function; None after an `e` reply."""
    try:
        lay_out(run["files"])
        module = load(run["module"])
        space.declare(run, module)
        function = find(module, run["function"]) if run["function"] else None
    except BaseException as error:
        line = error.lineno if isinstance(error, SyntaxError) else None
        reply(out, run["id"], "e", Encoder(space).raised(error).partition("+")[0] + " " + str(line or 0))
        return None
    reply(out, run["id"], "y")
    return (function,)


def perform(
    space: Space, operation: str, target: int, name: str, args: "tuple[Any, ...]", named: "dict[str, Any]"
) -> "Any":
    """Everything that can be asked beside a call of the run's own function."""
    place = space.objects[target] if target else space.module
    if operation == "f":
        del space.objects[target], space.numbers[id(place)]
        return None
    if operation == "g":
        return find(place, name)
    if operation == "s":
        setattr(place, name, *args)
        return None
    if operation == "x":
        return leave(space, place, name)
    if operation == "o":
        import _operator

        return (getattr(_operator, name, None) or getattr(sys.modules["builtins"], name))(*args)
    return find(place, name)(*args, **named)


def leave(space: Space, place: "Any", name: str) -> bool:
    """End a `with` block by an exception of that name, or by none; whether the block's end swallows it."""
    if not name:
        return bool(type(place).__exit__(place, None, None, None))
    kind = getattr(sys.modules["builtins"], name, None) or find(space.module, name)
    error = kind.__new__(kind)  # without its constructor, which may want arguments
    return bool(type(place).__exit__(place, kind, error, None))


def drained(values: "Iterable[Any]") -> "list[Any]":
    """What a generator yields, as far as a value can be long."""
    found = []
    for value in values:
        found.append(value)
        if len(found) > MAX_NODES:
            raise Refused
    return found


def answer(
    function: "Callable[..., Any] | None", run: "dict[str, Any]", space: Space, out: int, request: "tuple[Any, ...]"
) -> None:
    """One call, one reply."""
    ident, operation, target, name, args, named, table = request
    encoder = Encoder(space)
    kind = "r"
    try:
        if run["linked"]:
            args, named = space.rebuild(table, (args, named))
    except BaseException:  # its own class does not take its own fields
        reply(out, ident, "u")
        return
    try:
        if function is not None and operation == "c" and not name:
            value: Any = function(*args, **named)
        else:
            value = perform(space, operation, target, name, args, named)
        if run["drain"] and type(value) is GENERATOR:
            value = drained(value)
    except Refused:
        kind, value = "u", None
    except BaseException as error:
        kind, value = "x", error
    try:
        if kind == "x" and run["messages"]:
            value = (value, message(value))
        text = encoder.answer(value, (*args, *named.values()) if run["want_args"] else None)
    except BaseException:  # an object that resists being looked at has no encoding either
        kind = "u"
    if kind == "u":
        encoder.take_back()
        text = ""
    reply(out, ident, kind, text)


def message(error: BaseException) -> "str | None":
    """What the exception says, where that is a text of ordinary length."""
    text = str(error)
    return text if type(text) is str and len(text) <= 4096 else None


def trial(run: "dict[str, Any]", source: int, out: int) -> None:
    """One assessment in this very process: the jail is thrown away afterwards."""

    def late(number: int, frame: "FrameType | None") -> "NoReturn":
        reply(out, run["current"], "l")
        posix._exit(0)

    run["current"] = run["id"]
    space = Space(run)
    _signal.signal(SIGPROF, late)
    _signal.setitimer(_signal.ITIMER_PROF, run["import_cpu_s"])
    begun = begin(run, space, out)
    while begun is not None:
        asked = read_frame(source)
        for request in asked if type(asked) is list else [asked]:
            run["current"] = request[0]
            _signal.setitimer(_signal.ITIMER_PROF, run["call_cpu_s"])
            answer(begun[0], run, space, out, request)
    posix._exit(0)


def serve(source: int, out: int) -> None:
    """Fork server: this process never runs candidate code, each run is a child that is gone before the next."""
    while True:
        run = read_frame(source)
        child = posix.fork()
        if child == 0:
            try:
                posix.dup2(0, source, False)  # an empty pipe in its place: the same descriptors as in an assessment
                if run["proxy"]:
                    start_forwarder()
                _signal.setitimer(_signal.ITIMER_PROF, run["run_cpu_s"])  # default action: the kernel ends the process
                space = Space(run)
                begun = begin(run, space, out)
                if begun is not None:
                    for request in run["calls"]:
                        answer(begun[0], run, space, out, request)
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


def forget_seed() -> None:
    """The hash seed is in force by now; its number is nobody's business any more."""
    posix.unsetenv(b"PYTHONHASHSEED")
    posix.environ.pop(b"PYTHONHASHSEED", None)
    if "os" in sys.modules:
        sys.modules["os"].environ.pop("PYTHONHASHSEED", None)


def main() -> None:
    forget_seed()
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
