"""Escape probes, run at the start of every service that owns jails: any deviation and the service does not start."""

from __future__ import annotations

import json
import os

from services.runtime.errors import UserError
from services.runtime.jail import tree
from services.runtime.jail.launcher import JailHost
from services.runtime.jail.limits import MIB, JailFault, Limits, Usage
from services.runtime.jail.session import Program, Transcript, run_trial

_BOOT_S = 20.0

# Runs inside the jail. System calls go through ctypes with numbers found by name for this architecture.
_PROBE = r"""
import ctypes, errno, os
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
        "signal to the host": attempt(lambda: os.kill(HOST_PID, 0)) if HOST_PID != 1 else "ESRCH",
    }

def bomb(size):
    return len(b"x" * size)

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
)  # fmt: skip

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
    "signal to the host": "ESRCH",
}


def _numbers() -> dict[str, int]:
    import ctypes

    lib = ctypes.CDLL("libseccomp.so.2")
    return {name: lib.seccomp_syscall_resolve_name(name.encode()) for name in _CALLS}


def _ask(host: JailHost, limits: Limits, function: str, args: tuple[object, ...]) -> tuple[Transcript, Usage]:
    source = f"NUMBERS = {_numbers()!r}\nHOST_PID = {os.getpid()}\n{_PROBE}"
    program = Program({"probe.py": source}, "probe", function, exception_names=("OSError", "MemoryError", "Exception"))
    jail = host.launch(limits)
    try:
        processes = 0 if host.layout.version else limits.processes
        transcript = run_trial(
            jail, limits, program, [args], lambda i, a: True, call_cpu_s=5, import_cpu_s=5, wall_s=20, boot_s=_BOOT_S,
            processes=processes,
        )  # fmt: skip
    finally:
        usage = jail.close()
    return transcript, usage


def deviations(host: JailHost) -> list[str]:
    """What is not as it must be, in words; empty when the jail holds. Raises JailFault when no jail starts."""
    transcript, _ = _ask(host, Limits(), "probe", ())
    if not transcript.answers or transcript.answers[0].kind != "r":
        return [f"the probe gave no answer ({transcript.ending}, {transcript.failure}): {transcript.log[-300:]!r}"]
    seen = _plain(transcript.answers[0].text)
    expected: dict[str, object] = dict(EXPECTED)
    if os.geteuid() == 0:
        expected["read a root-only file"] = "EACCES"
        if not host.instance.uid(0) <= int(str(seen.get("uid"))) < host.instance.uid(0) + 250:
            expected["uid"] = "one of this instance's"
    found = [
        f"{name}: {seen.get(name)!r}, expected {want!r}" for name, want in expected.items() if seen.get(name) != want
    ]
    if host.layout.version:
        found += _counter_deviations(host)
    return found


def _counter_deviations(host: JailHost) -> list[str]:
    found = []
    small = Limits(memory_bytes=48 * MIB, processes=8)
    transcript, usage = _ask(host, small, "bomb", (192 * MIB,))
    if not usage.oom_kills or transcript.answers:
        found.append(f"memory limit: a 192 MiB value in a 48 MiB jail gave {usage.oom_kills} kills")
    _, usage = _ask(host, small, "forks", (64,))
    if not usage.pids_denied:
        found.append("process limit: 64 forks in a jail of 8 processes were not refused")
    return found


def _plain(text: str) -> dict[str, object]:
    """The probe's answer: a flat dict of text to text or int in tagged JSON."""
    pairs = json.loads(text)["d"]
    return {key: int(value["i"]) if isinstance(value, dict) else value for key, value in pairs}


def check(host: JailHost) -> None:
    """Raises UserError with every deviation in one message."""
    try:
        found = deviations(host)
    except JailFault as error:
        raise UserError(
            f"no sandbox can be started: {error}",
            "bubblewrap on this machine",
            "allow unprivileged user namespaces (sysctl kernel.apparmor_restrict_unprivileged_userns=0, "
            "user.max_user_namespaces > 0), or run this service as root outside a restricted container",
        ) from error
    if found:
        raise UserError(
            "the sandbox self-test failed, so no untrusted code will be run: " + "; ".join(found),
            f"bubblewrap, control groups version {host.layout.version}, tree {host.root} (worker {tree.WORKER})",
            "compare with a stock Debian 12 kernel and bubblewrap 0.8; nothing was started",
        )
