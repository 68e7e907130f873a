"""Escape probes, run at the start of every service that owns jails: any deviation and the service does not start."""

from __future__ import annotations

import json
import os
import resource

from services.runtime.errors import UserError
from services.runtime.jail import diagnosis, tree
from services.runtime.jail.backend import PLAIN, Options, own_processes
from services.runtime.jail.fixtures import holds
from services.runtime.jail.launcher import JailHost
from services.runtime.jail.limits import MIB, JailFault, Limits, Usage
from services.runtime.jail.session import Program, Transcript, run_trial

_BOOT_S = 20.0

# Runs inside the jail. System calls go through ctypes with numbers found by name for this architecture.
_PROBE = r"""
import ctypes, errno, fcntl, mmap, os, resource
libc = ctypes.CDLL(None, use_errno=True)

def call(name, *args):
    ctypes.set_errno(0)
    number = NUMBERS[name]
    if libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) for a in args]) >= 0:
        return "allowed"
    return errno.errorcode.get(ctypes.get_errno(), "?")

def attempt(action):
    try:
        action()
    except OSError as error:
        return errno.errorcode.get(error.errno, "?")
    return "allowed"

def open_fds():
    found = []
    for fd in range(256):
        try:
            os.fstat(fd)
        except OSError:
            continue
        found.append(fd)
    return len(found)

def shared_inodes(fd):
    found = {f"fcntl {name}": attempt(lambda: fcntl.fcntl(fd, number, bytes(64))) for name, number in COMMANDS.items()}
    found |= {f"fcntl {name}": attempt(lambda: fcntl.fcntl(fd, number, 0)) for name, number in PLAIN_COMMANDS.items()}
    found["flock"] = attempt(lambda: fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB))
    for name, args in ASKED.items():
        found[name] = call(name, fd, *args)
    page = mmap.mmap(fd, 4096, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    at = ctypes.addressof(ctypes.c_char.from_buffer(page))
    for name, (size, advice) in {"advice of eviction": (4096, 21), "advice of reading": (4096, 3)}.items():
        found[name] = call("madvise", at, size, advice)
    found["mincore"] = call("mincore", at, 4096, at)
    found["wait at a file's page"] = call("futex", at, 0, 0, 0, 0, 0)
    found["wake at a file's page"] = call("futex", at, 1, 1, 0, 0, 0)
    found["the machine's load"] = call("sysinfo", at)
    found["timers of a user"] = call("timer_create", 1, 0, at)
    return found

def probe():
    return {
        "pid": os.getpid(),
        "uid": os.getuid(),
        "groups": len(set(os.getgroups()) - {os.getgid()}),
        "environment": ",".join(sorted(set(os.environ) - {"LC_CTYPE", "PWD"})),  # made by interpreter and bubblewrap
        "fds": open_fds(),
        "root entries": ",".join(sorted(os.listdir("/"))),
        "read a root-only file": attempt(lambda: open("/root-only").read()),
        "write to the root": attempt(lambda: os.mkdir("/made")),
        "write to the interpreter": attempt(lambda: open("/python/lib/made", "w")),
        "proc": attempt(lambda: os.listdir("/proc")),
        "no new privileges": libc.prctl(39, 0, 0, 0, 0),
        "filter mode": libc.prctl(21, 0, 0, 0, 0),
        "bounding mount capability used": call("mount", 0, 0, 0, 0, 0),
        "ptrace": call("ptrace", 0, 0, 0, 0),
        "user namespace by unshare": call("unshare", 0x10000000),
        "user namespace by clone": call("clone", 0x10000000 | 17, 0, 0, 0, 0),
        "clone3": call("clone3", 0, 0),
        "network": call("socket", 2, 1, 0),
        "vsock": call("socket", 40, 1, 0),
        "memory of others": call("process_vm_readv", 1, 0, 0, 0, 0, 0),
        "bpf": call("bpf", 0, 0, 0),
        "io_uring": call("io_uring_setup", 1, 0),
        "keys": call("keyctl", 0, 0, 0, 0, 0),
        "mount table": call("statmount", 0, 0, 0, 0),
        "unmount": call("umount2", 0, 0),
        "memory as a file": call("memfd_create", 0, 0),
        "limits of another": call("prlimit64", 1, 7, 0, 0),
        "priority of another": call("setpriority", 0, 1, 0),
        "processors of another": call("sched_setaffinity", 1, 8, 0),
        "size of a shared pipe": attempt(lambda: fcntl.fcntl(1, 1031, 4096)),
        "disks of the machine": call("syncfs", 0),
        "host-wide requests": call("io_setup", 1, 0),
        **shared_inodes(os.open(os.__file__, os.O_RDONLY)),
        "limits": ",".join(str(resource.getrlimit(kind)[1]) for kind in LIMITS),
        "signal to the host": attempt(lambda: os.kill(HOST_PID, 0)) if HOST_PID != 1 else "ESRCH",
    }

def environment():
    return {"environment": ",".join(sorted(set(os.environ) - {"LC_CTYPE", "PWD"})), "hash": hash("jail")}

def fill(files, size):
    made, block = 0, b"x" * 65536
    try:
        for number in range(files):
            open(f"/tmp/fill{number}", "w").close()
            made += 1
        with open("/tmp/fill", "wb", 0) as file:
            for _ in range(size // len(block)):
                file.write(block)
    except OSError as error:
        return f"{errno.errorcode.get(error.errno)} after {made}"
    return f"not bounded after {made}"

def run_own():
    open("/tmp/own", "w").write("#!/python/bin/python\n")
    os.chmod("/tmp/own", 0o700)
    return attempt(lambda: os.execv("/tmp/own", ["own"]))

def spoil():
    found = open("/tmp/tree/shown/data.txt").read()
    open("/tmp/tree/shown/data.txt", "w").write("spoilt")
    open("/tmp/tree/shown/more.txt", "w").write("more")
    changed = open("/tmp/tree/shown/data.txt").read()
    os.unlink("/tmp/tree/shown/data.txt")
    return found + "," + changed + "," + ",".join(sorted(os.listdir("/tmp/tree/shown")))

def bomb(size):
    return len(b"x" * size)

def hard_limits(kinds):
    return ",".join(str(resource.getrlimit(kind)[1]) for kind in kinds)

def hold(count, size, seconds):
    import time
    for _ in range(count):
        if os.fork() == 0:
            kept = b"x" * size
            time.sleep(60)
    time.sleep(seconds)

def forks(count):
    made = 0
    try:
        for _ in range(count):
            if os.fork() == 0:
                os.read(0, 1)
                import time
                time.sleep(60)
                os._exit(0)
            made += 1
    except OSError:
        pass
    return made
"""
_CALLS = (
    "mount", "ptrace", "unshare", "clone", "clone3", "socket", "process_vm_readv", "bpf", "io_uring_setup", "keyctl",
    "umount2", "memfd_create", "prlimit64", "setpriority", "sched_setaffinity", "syncfs", "io_setup", "timer_create",
    "fadvise64", "readahead", "sync_file_range", "preadv2", "madvise", "mincore", "futex", "sysinfo", "flock",
)  # fmt: skip
# What can be asked of a file that another jail may have open too, apart from its bytes.
_COMMANDS = {"F_GETLK": 5, "F_SETLK": 6, "F_SETLKW": 7, "F_OFD_GETLK": 36, "F_OFD_SETLK": 37, "F_OFD_SETLKW": 38,
             "F_GET_RW_HINT": 1035, "F_SET_RW_HINT": 1036}  # fmt: skip
_PLAIN_COMMANDS = {"F_SETOWN": 8, "F_SETSIG": 10, "F_SETLEASE": 1024, "F_GETLEASE": 1025, "F_NOTIFY": 1026,
                   "F_SETPIPE_SZ": 1031, "F_GETPIPE_SZ": 1032}  # fmt: skip
_ASKED: dict[str, tuple[int, ...]] = {
    "fadvise64": (0, 0, 4), "readahead": (0, 4096), "sync_file_range": (0, 0, 0), "preadv2": (0, 0, 0, 0, 8),
    "cachestat": (0, 0, 0),
}  # fmt: skip
_STATMOUNT, _CACHESTAT = 457, 451
_LIMITS = (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE, resource.RLIMIT_STACK, resource.RLIMIT_MEMLOCK,
           resource.RLIMIT_MSGQUEUE, resource.RLIMIT_NICE, resource.RLIMIT_RTPRIO)  # fmt: skip

EXPECTED = {
    "pid": 1,
    "groups": 0,
    "environment": "",
    "fds": 5,
    "proc": "ENOENT",
    "write to the root": "EROFS",
    "write to the interpreter": "EROFS",
    "no new privileges": 1,
    "filter mode": 2,
    "bounding mount capability used": "EPERM",
    "ptrace": "EPERM",
    "user namespace by unshare": "EPERM",
    "user namespace by clone": "EPERM",
    "clone3": "ENOSYS",
    "network": "EPERM",
    "vsock": "EPERM",
    "memory of others": "EPERM",
    "bpf": "EPERM",
    "io_uring": "EPERM",
    "keys": "EPERM",
    "mount table": "ENOSYS",
    "unmount": "EPERM",
    "memory as a file": "EPERM",
    "limits of another": "EPERM",
    "priority of another": "EPERM",
    "processors of another": "EPERM",
    "size of a shared pipe": "EPERM",
    "disks of the machine": "EPERM",
    "host-wide requests": "EPERM",
    **{f"fcntl {name}": "EPERM" for name in (*_COMMANDS, *_PLAIN_COMMANDS)},
    **dict.fromkeys(("flock", *_ASKED, "mincore", "advice of eviction", "advice of reading"), "EPERM"),
    "cachestat": "ENOSYS",
    "wait at a file's page": "EAGAIN",
    "wake at a file's page": "EINVAL",
    "the machine's load": "EPERM",
    "timers of a user": "EPERM",
    "limits": f"{Limits().files},0,{8 * MIB},0,0,0,0",
    "signal to the host": "ESRCH",
}


def _numbers() -> dict[str, int]:
    import ctypes

    lib = ctypes.CDLL("libseccomp.so.2")
    numbers = {name: lib.seccomp_syscall_resolve_name(name.encode()) for name in _CALLS}
    return {**numbers, "statmount": _STATMOUNT, "cachestat": _CACHESTAT}


def source() -> str:
    """The probes as one module, for every backend."""
    tables = f"COMMANDS = {_COMMANDS!r}\nPLAIN_COMMANDS = {_PLAIN_COMMANDS!r}\nASKED = {_ASKED!r}\n"
    return f"NUMBERS = {_numbers()!r}\nLIMITS = {_LIMITS!r}\nHOST_PID = {os.getpid()}\n{tables}{_PROBE}"


def ask(
    host: JailHost, limits: Limits, function: str, args: tuple[object, ...], options: Options = PLAIN
) -> tuple[Transcript, Usage]:
    program = Program(
        {"probe.py": source()}, "probe", function, exception_names=("OSError", "MemoryError", "Exception")
    )
    jail = host.launch(limits, options)
    try:
        processes = own_processes(host, limits)
        transcript = run_trial(
            jail, limits, program, [args], lambda i, a: True, call_cpu_s=5, import_cpu_s=5, wall_s=20, boot_s=_BOOT_S,
            processes=processes,
        )  # fmt: skip
    finally:
        usage = jail.close()
    return transcript, usage


def deviations(host: JailHost) -> list[str]:
    """What is not as it must be, in words; empty when the jail holds. Raises JailFault when no jail starts."""
    transcript, _ = ask(host, Limits(), "probe", ())
    if not transcript.answers or transcript.answers[0].kind != "r":
        return [f"the probe gave no answer ({transcript.ending}, {transcript.failure}): {transcript.log[-300:]!r}"]
    seen = plain(transcript.answers[0].text)
    expected: dict[str, object] = dict(EXPECTED)
    if os.geteuid() == 0:
        expected["read a root-only file"] = "EACCES"
        if not host.instance.uid(0) <= int(str(seen.get("uid"))) < host.instance.uid(0) + 250:
            expected["uid"] = "one of this instance's"
    found = [
        f"{name}: {seen.get(name)!r}, expected {want!r}" for name, want in expected.items() if seen.get(name) != want
    ]
    found += _environment_deviations(host)
    if host.private_mounts:
        found += _scratch_deviations(host)
    if host.shows_files:
        found += _shown_deviations(host)
    if host.layout.version:
        found += _counter_deviations(host)
    else:
        from services.runtime.jail import selftest_bounds

        found += selftest_bounds.deviations(host)
    return found


def _environment_deviations(host: JailHost) -> list[str]:
    """A hash seed must be in force and leave no trace in the environment."""
    seen = [answer_text(ask(host, Limits(), "environment", (), Options(hash_seed=seed))[0]) for seed in (7, 7, 8)]
    if '["environment",""]' not in seen[0] or seen[0] != seen[1] or seen[1] == seen[2]:
        return [f"hash seeds 7, 7 and 8 gave {seen}"]
    return []


def _scratch_deviations(host: JailHost) -> list[str]:
    found = []
    small = Limits(tmp_bytes=MIB, tmp_inodes=64, file_bytes=8 * MIB)
    for what, args, wanted in (("files", (4096, 0), "ENOSPC after "), ("bytes", (0, 4 * MIB), "ENOSPC after 0")):
        text = answer_text(ask(host, small, "fill", args)[0])
        if not text.startswith(f'"{wanted}'):
            found.append(f"number of {what} under /tmp: {text}, expected {wanted}")
    text = answer_text(ask(host, Limits(), "run_own", ())[0])
    if text != '"EACCES"':
        found.append(f"run a program from /tmp: {text}, expected EACCES")
    return found


def _shown_deviations(host: JailHost) -> list[str]:
    """What a jail does to the tree that it is shown happens to its own copy alone."""
    options = Options(files={"shown/data.txt": "pristine"}, files_digest="self-test")
    seen = [answer_text(ask(host, Limits(), "spoil", (), options)[0]) for _ in range(2)]
    if seen != ['"pristine,spoilt,more.txt"'] * 2:
        return [f"a fixture's tree shown twice gave {seen}"]
    key, at = host.fixtures.show(options.files, options.files_digest)
    host.fixtures.leave(key)
    return [] if holds(at, options.files) else ["a jail changed the tree below the overlay"]


def _counter_deviations(host: JailHost) -> list[str]:
    found = []
    small = Limits(memory_bytes=48 * MIB, processes=8)
    transcript, usage = ask(host, small, "bomb", (192 * MIB,))
    if not usage.oom_kills or transcript.answers:
        found.append(f"memory limit: a 192 MiB value in a 48 MiB jail gave {usage.oom_kills} kills")
    _, usage = ask(host, small, "forks", (64,))
    if not usage.pids_denied:
        found.append("process limit: 64 forks in a jail of 8 processes were not refused")
    return found


def answer_text(transcript: Transcript) -> str:
    """The one answer as tagged JSON, or what happened instead."""
    if not transcript.answers or transcript.answers[0].kind != "r":
        return f"no answer ({transcript.ending}, {transcript.failure}, {transcript.log[-200:]!r})"
    return transcript.answers[0].text


def plain(text: str) -> dict[str, object]:
    """The probe's answer: a flat dict of text to text or int in tagged JSON."""
    pairs = json.loads(text)["d"]
    return {key: int(value["i"]) if isinstance(value, dict) else value for key, value in pairs}


def check(host: JailHost) -> None:
    """Raises UserError with every deviation in one message."""
    try:
        found = deviations(host)
    except JailFault as error:
        reason = diagnosis.no_jail(str(error))
        raise UserError(f"no sandbox can be started: {reason.what}", reason.where, reason.do) from error
    if found:
        raise UserError(
            "the sandbox self-test failed, so no untrusted code will be run: " + "; ".join(found),
            f"bubblewrap, control groups version {host.layout.version}, tree {tree.staged()} (worker {tree.WORKER})",
            "compare with a stock Debian 12 kernel and bubblewrap 0.8; nothing was started",
        )
