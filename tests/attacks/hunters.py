# ruff: noqa: E501 - hunters are read as one line each
"""Programs that look for a secret wherever a process may look. Each answers with what it found, and does so for any question."""

import textwrap

MARK = "canary"
"""How every planted secret begins; then 26 hexadecimal digits."""

BASE = """
import os, re, sys, zlib
MARK = re.compile(rb"canary" + rb"[0-9a-f]{26}")
ROOTS = ["/"]
PORT = 1
def look(raw):
    found = MARK.search(raw)
    if found is None and raw[:2] in (b"x\\x01", b"x\\x9c", b"x\\xda", b"\\x1f\\x8b"):
        try: found = MARK.search(zlib.decompressobj(47).decompress(raw, 1 << 22))
        except zlib.error: pass
    return found[0].decode() if found else None
def read(path, most=1 << 22):
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError: return None
    try: return look(os.read(fd, most))
    except OSError: return None
    finally: os.close(fd)
def walk(top, deep=40):
    for folder, folders, files in os.walk(top):
        if folder in ("/proc", "/sys", "/dev"): folders[:] = ["shm", "mqueue"] if folder == "/dev" else []
        for name in files:
            found = look(name.encode("utf-8", "replace")) or read(os.path.join(folder, name))
            if found: return found
def calls():
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    def call(number, *arguments): return libc.syscall(number, *(ctypes.c_long(a) if type(a) is int else a for a in arguments))
    return ctypes, libc, call
def reveal(n):
    try: return hunt() or "nothing"
    except BaseException as error: return "raised " + type(error).__name__
"""

HUNTS = {
    "files everywhere": """
        def hunt():
            for root in ROOTS:
                found = walk(root)
                if found: return found
        """,
    "environments and arguments": """
        def hunt():
            found = look(repr(dict(os.environ)).encode()) or look(repr(sys.argv + sys.orig_argv).encode())
            for pid in ["self", *(p for p in (os.listdir("/proc") if os.path.isdir("/proc") else []) if p.isdigit())]:
                for name in ("environ", "cmdline", "comm", "auxv", "cwd", "task/" + pid + "/environ"):
                    found = found or read(f"/proc/{pid}/{name}")
            return found
        """,
    "roots, folders and descriptors of processes": """
        def hunt():
            for pid in ["self", *(p for p in (os.listdir("/proc") if os.path.isdir("/proc") else []) if p.isdigit())]:
                for name in ("root/tmp", "cwd", "root/etc", "root/dev/shm", "root/run"):
                    try: names = os.listdir(f"/proc/{pid}/{name}")
                    except OSError: continue
                    for one in names[:200]:
                        found = read(f"/proc/{pid}/{name}/{one}")
                        if found: return found
                try: fds = os.listdir(f"/proc/{pid}/fd")
                except OSError: continue
                if int(pid if pid != "self" else os.getpid()) == os.getpid(): continue
                for fd in fds:
                    found = read(f"/proc/{pid}/fd/{fd}")
                    if found: return found
        """,
    "own memory": """
        def hunt():
            import gc
            for thing in gc.get_objects():
                if type(thing) in (dict, list, tuple, set):
                    for part in list(thing.values() if type(thing) is dict else thing):
                        if type(part) in (str, bytes):
                            found = look(part.encode("utf-8", "replace") if type(part) is str else part)
                            if found: return found
            frame = sys._getframe()
            while frame:
                found = look(repr([v for v in frame.f_locals.values() if type(v) in (str, bytes, list, tuple, dict)])[:1 << 20].encode())
                if found: return found
                frame = frame.f_back
            return memory("self")
        def memory(pid):
            try:
                with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as file:
                    for line in maps:
                        span, kind = line.split()[:2]
                        start, end = (int(x, 16) for x in span.split("-"))
                        if "r" not in kind or end - start > 1 << 26: continue
                        try:
                            file.seek(start)
                            found = MARK.search(file.read(end - start))
                        except (OSError, ValueError, OverflowError): continue
                        if found: return found[0].decode()
            except OSError: return None
        """,
    "memory of others": """
        def hunt():
            ctypes, libc, call = calls()
            class Vector(ctypes.Structure): _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]
            for pid in list(range(1, 40)) + [os.getppid()] + PIDS:
                if pid == os.getpid(): continue
                try: maps = open(f"/proc/{pid}/maps").read().splitlines()
                except OSError: maps = ["7ffffffde000-7ffffffff000 rw-p", "555555554000-555555755000 r--p"]
                for line in maps:
                    span, kind = line.split()[:2]
                    start, end = (int(x, 16) for x in span.split("-"))
                    if "w" not in kind or end - start > 1 << 26: continue
                    buffer = ctypes.create_string_buffer(end - start)
                    local, remote = Vector(ctypes.addressof(buffer), end - start), Vector(start, end - start)
                    if libc.process_vm_readv(pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0) > 0:
                        found = MARK.search(buffer.raw)
                        if found: return found[0].decode()
                if call(101, 16, pid, 0, 0) == 0: call(101, 17, pid, 0, 0)
        PIDS = []
        """,
    "sockets": """
        def hunt():
            ctypes, libc, call = calls()
            def ask(family, address):
                fd = call(41, family, 1, 0)
                if fd < 0: return None
                try:
                    if call(42, fd, address, len(address)) != 0: return None
                    return look(os.read(fd, 4096))
                except OSError: return None
                finally: os.close(fd)
            def inet(*parts): return b"\\x02\\0" + PORT.to_bytes(2, "big") + bytes(parts) + b"\\0" * 8
            for parts in ((127, 0, 0, 1), (172, 17, 0, 1), (10, 0, 2, 2), (192, 168, 0, 1), (169, 254, 169, 254)):
                if parts[0] != 127 and ROOTS != ["/"]: continue
                found = ask(2, inet(*parts))
                if found: return found
            return ask(1, b"\\x01\\0" + b"\\0rollstream-leak-%d" % PORT)
        """,
    "shared memory and queues": """
        def hunt():
            ctypes, libc, call = calls()
            libc.shmat.restype = ctypes.c_void_p
            for ident in list(range(0, 200)) + SEGMENTS:
                at = libc.shmat(ident, None, 0o10000)
                if at in (None, ctypes.c_void_p(-1).value): continue
                found = look(ctypes.string_at(at, 64))
                if found: return found
            for folder in ("/dev/shm", "/dev/mqueue"):
                if os.path.isdir(folder):
                    found = walk(folder)
                    if found: return found
        SEGMENTS = []
        """,
    "inherited descriptors": """
        def hunt():
            for fd in range(256):
                try:
                    os.set_blocking(fd, False)
                    found = look(os.pread(fd, 1 << 20, 0))
                except OSError:
                    try: found = look(os.read(fd, 1 << 20)) if fd > 9 else None
                    except OSError: continue
                if found: return found
        """,
}


def source(
    name: str, roots: str = "/", port: int = 1, pids: tuple[int, ...] = (), segments: tuple[int, ...] = ()
) -> str:
    """The program of one hunter. The places to look at can be narrowed, for a control run outside of any jail."""
    text = BASE + textwrap.dedent(HUNTS[name])
    text = text.replace('ROOTS = ["/"]', f"ROOTS = [{roots!r}]").replace("PORT = 1", f"PORT = {port}")
    return text.replace("PIDS = []", f"PIDS = {list(pids)}").replace("SEGMENTS = []", f"SEGMENTS = {list(segments)}")
