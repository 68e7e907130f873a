"""Ways in which two jails could talk without a network: through what the kernel keeps about a file or a user.

Each has a sender, which changes something and stays, and a receiver, whose answer must be the same whether somebody
sends, has sent, or never did.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass, field

from services.runtime.jail.backend import Backend, Jail, own_processes
from services.runtime.jail.limits import Limits
from services.runtime.jail.session import Conversation, Pace, Program
from tests.contract.sandbox.asking import BOOT_S, NAMES

LIMITS = Limits()

SOURCE = """
import ctypes, errno, fcntl, mmap, os, struct, threading, time
libc = ctypes.CDLL(None, use_errno=True)
FILE = os.open(os.__file__, os.O_RDONLY)
EVENT = libc.eventfd(0, 0)
PAGE = mmap.mmap(FILE, 4096, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
AT = libc.mmap(None, 4096, 1, 2, FILE, 0)
VALUE = ctypes.c_uint32.from_address(AT).value
KEEP = []
POSIX = struct.Struct("hhqqi4x")

def call(number, *arguments):
    ctypes.set_errno(0)
    got = libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments))
    return str(got) if got >= 0 else errno.errorcode.get(ctypes.get_errno(), "?")

def control(fd, command, argument=0):
    try:
        return repr(fcntl.fcntl(fd, command, argument))
    except OSError as error:
        return errno.errorcode.get(error.errno, "?")

def lock(kind): return POSIX.pack(kind, 0, 100, 40, 0)

def told(command):
    buffer = ctypes.create_string_buffer(lock(fcntl.F_WRLCK), 64)
    got = call(N["fcntl"], FILE, command, ctypes.addressof(buffer))
    return got + " " + str(POSIX.unpack(buffer.raw[:POSIX.size])[0])

def whole(fd, kind):
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except OSError as error:
        return errno.errorcode.get(error.errno, "?")
    return "held"

def wait():
    def until(at=AT, value=VALUE):
        libc.syscall(N["futex"], ctypes.c_void_p(at), 0, value, (ctypes.c_long * 2)(20, 0), None, 0)
    threading.Thread(target=until, daemon=True).start()
    time.sleep(0.2)

def crowd():
    for _ in range(4):
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)

def present(kind):
    last = os.fstat(FILE).st_size // 4096
    if kind == "preadv2":
        buffer, spot = ctypes.create_string_buffer(16), ctypes.create_string_buffer(16)
        struct.pack_into("QQ", spot, 0, ctypes.addressof(buffer), 16)
        return call(N["preadv2"], FILE, ctypes.addressof(spot), 1, last * 4096, 0, 8)
    if kind == "mincore":
        seen = ctypes.create_string_buffer(16)
        at = libc.mmap(None, (last + 1) * 4096, 1, 2, FILE, 0)
        return call(N["mincore"], at, 4096 * (last + 1), ctypes.addressof(seen)) + seen.raw.hex()
    around, seen = (ctypes.c_uint64 * 2)(0, 0), (ctypes.c_uint64 * 5)()
    return call(451, FILE, ctypes.addressof(around), ctypes.addressof(seen), 0) + str(list(seen)[:1])

def forget():
    call(N["fadvise64"], FILE, 0, 0, 4)
    return call(N["madvise"], AT, 4096, 21)

def load():
    buffer = ctypes.create_string_buffer(256)
    got = call(N["sysinfo"], ctypes.addressof(buffer))
    return got + " " + str(struct.unpack_from("H", buffer, 80)[0] if got == "0" else "")

WAYS = {
    "record lock": (lambda: control(FILE, fcntl.F_SETLK, lock(fcntl.F_RDLCK)), lambda: told(fcntl.F_GETLK)),
    "lock of a description": (lambda: control(FILE, 37, lock(fcntl.F_RDLCK)), lambda: told(36)),
    "whole-file lock": (lambda: whole(FILE, fcntl.LOCK_SH), lambda: whole(os.open(os.__file__, 0), fcntl.LOCK_EX)),
    "lock of an event": (lambda: whole(EVENT, fcntl.LOCK_SH), lambda: whole(libc.eventfd(0, 0), fcntl.LOCK_EX)),
    "lease": (lambda: control(FILE, 1024, fcntl.F_RDLCK), lambda: control(FILE, 1025)),
    "hint in the inode": (lambda: control(FILE, 1036, struct.pack("Q", 2)), lambda: control(FILE, 1035, bytes(8))),
    "wait at a page": (wait, lambda: call(N["futex"], AT, 1, 1, 0, 0, 0)),
    "page cache, preadv2": (forget, lambda: present("preadv2")),
    "page cache, mincore": (forget, lambda: present("mincore")),
    "page cache, cachestat": (forget, lambda: present("cachestat")),
    "processes of the machine": (crowd, load),
}

def f(role, way):
    return str(WAYS[way][role]())

def ways(): return " / ".join(WAYS)

def places():
    import json
    return " ".join(f"{s.st_dev}:{s.st_ino}" for s in map(os.stat, (os.__file__, json.__file__, "/python")))
"""
SENDS, RECEIVES = 0, 1
_CALLS = ("fcntl", "futex", "preadv2", "mincore", "fadvise64", "madvise", "sysinfo")
REFUSED = {"EPERM", "ENOSYS", "EINVAL"}


def _numbers() -> dict[str, int]:
    import ctypes

    lib = ctypes.CDLL("libseccomp.so.2")
    return {name: int(lib.seccomp_syscall_resolve_name(name.encode())) for name in _CALLS}


@dataclass
class Party:
    """One jail with all ways loaded, asked again and again."""

    backend: Backend
    jail: Jail = field(init=False)

    def __enter__(self) -> Party:
        self.jail = self.backend.launch(LIMITS)
        processes = own_processes(self.backend, LIMITS)
        self._asked = Conversation(self.jail, LIMITS, Pace(8.0, 8.0, 60.0, 600.0, BOOT_S), processes)
        text = f"N = {_numbers()!r}\n{SOURCE}"
        assert self._asked.start(Program({"m.py": text}, "m", "f", exception_names=NAMES)), self._asked.transcript
        return self

    def __exit__(self, *_: object) -> None:
        self.jail.close()

    def ask(self, *args: object, function: str = "") -> str:
        answer = self._asked.call(function, args)
        assert answer.kind == "r", answer
        return str(json.loads(answer.text))


def heard(first: Backend, second: Backend) -> list[str]:
    """What a jail learnt of another one, in words: at once, in both directions, and afterwards. Empty: nothing."""
    found = []
    with Party(first) as fresh:
        ways = fresh.ask(function="ways").split(" / ")
        quiet = {way: fresh.ask(RECEIVES, way) for way in ways}
        for way, said in quiet.items():
            if said.split()[0].split("0")[0].rstrip("[") not in REFUSED:
                found.append(f"{way}: it may ask ({said})")
    with Party(first) as here, Party(second) as there:
        for way in ways:
            for sender, receiver, what in ((there, here, "from there"), (here, there, "from here")):
                sender.ask(SENDS, way)
                said = receiver.ask(RECEIVES, way)
                if said != quiet[way]:
                    found.append(f"{way}, {what}: {said}, not {quiet[way]}")
    for backend, when in ((first, "the same"), (second, "another")):
        with Party(backend) as later:
            for way in ways:
                said = later.ask(RECEIVES, way)
                if said != quiet[way]:
                    found.append(f"{way}, from an earlier jail of {when} service: {said}, not {quiet[way]}")
    return found


def places(*backends: Backend) -> list[str]:
    """Device and inode of three files of the interpreter, as one jail of each of these sees them at the same time."""
    with ExitStack() as stack:
        parties = [stack.enter_context(Party(backend)) for backend in backends]
        return [place for party in parties for place in party.ask(function="places").split()]
