"""Escape probes for containers: those of bubblewrap jails, and those for what only a container has."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from services.runtime.errors import UserError
from services.runtime.jail import selftest
from services.runtime.jail.backend import PLAIN, Options
from services.runtime.jail.docker.config import MASKED
from services.runtime.jail.instance import SLOTS
from services.runtime.jail.limits import MIB, JailFault, Limits, Usage
from services.runtime.jail.session import Program, Transcript, run_trial

if TYPE_CHECKING:
    from services.runtime.jail.docker.host import DockerHost

_BOOT_S = 30.0

# Runs inside the container, after the common probes.
_PROBE = r"""
def names(path):
    with open(path, "rb") as file:
        return ",".join(sorted(item.split(b"=")[0].decode() for item in file.read().split(b"\0") if item))

def status(key):
    with open("/proc/self/status") as file:
        return next((line.split()[1].lstrip("0") for line in file if line.startswith(key + ":")), "")

def others(known):
    with open("/proc/self/mountinfo") as file:
        at = [line.split()[4] for line in file]
    return ",".join(sorted(p for p in at if p not in known and not p.startswith(("/proc/", "/sys/", "/dev/"))))

def size(path):
    try:
        with open(path, "rb") as file:
            return len(file.read(64))
    except OSError:
        return 0

def devices():
    with open("/proc/net/dev") as file:
        return ",".join(sorted(line.split(":")[0].strip() for line in file if ":" in line))

def device():
    os.mknod("/tmp/device", 0o20600, os.makedev(1, 1))
    os.close(os.open("/tmp/device", os.O_RDONLY))

def neighbour():
    child = os.fork()
    if child == 0:
        os.read(0, 1)
        os._exit(0)
    try:
        return attempt(lambda: open(f"/proc/{child}/mem", "r+b").close())
    finally:
        os.kill(child, 9)
        os.wait()

def container():
    return {
        "capabilities": status("CapBnd") + status("CapPrm") + status("CapEff") + status("CapInh") + status("CapAmb"),
        "environment of process 1": names("/proc/1/environ"),
        "processes": len([name for name in os.listdir("/proc") if name.isdigit()]),
        "write to /proc/sys": attempt(lambda: open("/proc/sys/kernel/hostname", "w")),
        "write to /proc/sysrq-trigger": attempt(lambda: open("/proc/sysrq-trigger", "w")),
        "make a control group": attempt(lambda: os.mkdir("/sys/fs/cgroup/made")),
        "shared memory": attempt(lambda: open("/dev/shm/made", "w")),
        "message queue": attempt(lambda: open("/dev/mqueue/made", "w")),
        "device": attempt(device),
        "kernel memory": size("/proc/kcore"),
        "kernel keys": size("/proc/keys"),
        "kernel timers": size("/proc/timer_list"),
        "of the whole machine": sum(map(size, MACHINE)),
        "memory of a neighbour": neighbour(),
        "network devices": devices(),
        "other mounts": others(KNOWN),
        "write to a text of the engine": attempt(lambda: open("/etc/hostname", "w")),
    }
"""
_KNOWN = ("/", "/proc", "/sys", "/dev", "/tmp", "/sbin/docker-init", "/usr/sbin/docker-init", "/etc/hostname",
          "/etc/hosts", "/etc/resolv.conf")  # fmt: skip

# How a container differs from a bubblewrap jail, and why that is no way out.
DIFFERS: dict[str, object] = {
    "pid": None,  # docker-init is process 1
    "environment": "HOME",  # runc sets HOME=/ for whoever has none; nothing of the host is in it
    "proc": "allowed",  # every container has one; what it shows is probed below
    "mount table": ("ENOSYS", "EPERM"),  # newer than an old engine's table of calls
    "cachestat": ("ENOSYS", "EPERM"),
}
EXPECTED: dict[str, object] = {
    "capabilities": "",
    "environment of process 1": "HOME",
    "processes": 2,
    "write to /proc/sys": ("EROFS", "ENOENT", "EACCES"),
    "write to /proc/sysrq-trigger": ("EROFS", "ENOENT"),  # a kernel need not have it
    "make a control group": ("ENOENT", "EROFS", "EACCES"),  # /sys is not shown
    "shared memory": ("ENOENT", "EACCES"),
    "message queue": ("EMFILE", "ENOENT", "EACCES"),
    "device": "EPERM",
    "kernel memory": 0,
    "kernel keys": 0,
    "kernel timers": 0,
    "of the whole machine": 0,
    "memory of a neighbour": "EACCES",
    "network devices": "lo",
    "other mounts": "",
    "write to a text of the engine": ("EROFS", "EACCES"),
}

# How gVisor differs from runc: its own kernel answers, and it holds no counters of ours.
SENTRY: dict[str, object] = {
    "of the whole machine": None,  # it shows files of its own making there
    "write to the interpreter": ("EROFS", "EACCES"),
    "clone3": None,  # not filtered there, see `profile`
    "wait at a file's page": None,  # nor this: its futexes are those of one container
    "wake at a file's page": None,
    "cachestat": ("ENOSYS", "EPERM"),
    "memory of a neighbour": ("EACCES", "EPERM", "ENOENT"),
    "network devices": ("lo", ""),
    "write to /proc/sys": ("EROFS", "EACCES", "ENOENT"),
    "write to /proc/sysrq-trigger": ("EROFS", "EACCES", "ENOENT"),
    "make a control group": ("EROFS", "EACCES", "ENOENT"),
    "message queue": ("EMFILE", "ENOENT", "EACCES", "EROFS"),
    "shared memory": ("ENOENT", "EACCES", "EROFS"),
    "device": ("EPERM", "EACCES", "ENXIO", "ENODEV"),
}


def _ask(
    host: DockerHost, limits: Limits, function: str, args: tuple[object, ...] = (), options: Options = PLAIN
) -> tuple[Transcript, Usage]:
    source = selftest.source() + f"KNOWN = {_KNOWN!r}\nMACHINE = {MASKED!r}\n" + _PROBE
    program = Program({"probe.py": source}, "probe", function, exception_names=("OSError", "MemoryError", "Exception"))
    jail = host.launch(limits, options)
    try:
        transcript = run_trial(
            jail, limits, program, [args], lambda i, a: True, call_cpu_s=5, import_cpu_s=5, wall_s=30, boot_s=_BOOT_S
        )
    finally:
        usage = jail.close()
    return transcript, usage


def _differences(seen: dict[str, object], expected: dict[str, object]) -> list[str]:
    found = []
    for name, want in expected.items():
        wanted = want if isinstance(want, tuple) else (want,)
        if want is not None and seen.get(name) not in wanted:
            found.append(f"{name}: {seen.get(name)!r}, expected {' or '.join(map(repr, wanted))}")
    return found


def deviations(host: DockerHost) -> list[str]:
    """What is not as it must be, in words; empty when the jail holds. Raises JailFault when none starts."""
    found: list[str] = []
    expected: dict[str, Any] = {**selftest.EXPECTED, **DIFFERS}
    inside: dict[str, Any] = dict(EXPECTED)
    if host.staged:
        expected["read a root-only file"] = "EACCES"
    else:
        expected["write to the interpreter"] = None  # a user's image has no such folder
        inside["memory of a neighbour"] = None  # nor is its interpreter unreadable, see `archive`
    for table in (expected, inside):
        table |= {name: want for name, want in SENTRY.items() if host.sentry and table.get(name) is not None}
    for function, wanted in (("probe", expected), ("container", inside)):
        transcript, _ = _ask(host, Limits(), function)
        if not transcript.answers or transcript.answers[0].kind != "r":
            return [*found, f"the probe gave {selftest.answer_text(transcript)}"]
        seen = selftest.plain(transcript.answers[0].text)
        found += _differences(seen, wanted)
        if function == "probe" and not host.instance.uid(0) <= int(str(seen["uid"])) < host.instance.uid(0) + SLOTS:
            found.append(f"uid: {seen['uid']}, expected one of this instance's")
    return found + _bounds(host)


def _bounds(host: DockerHost) -> list[str]:
    """Hash seed, /tmp, memory and processes, each met on purpose."""
    found = []
    seeds = [
        selftest.answer_text(_ask(host, Limits(), "environment", (), Options(hash_seed=seed))[0]) for seed in (7, 7, 8)
    ]
    if '["environment","HOME"]' not in seeds[0] or seeds[0] != seeds[1] or seeds[1] == seeds[2]:
        found.append(f"hash seeds 7, 7 and 8 gave {seeds}")
    small = Limits(tmp_bytes=MIB, tmp_inodes=64, file_bytes=8 * MIB)
    fills = [("bytes", (0, 4 * MIB), "ENOSPC after 0"), ("files", (4096, 0), "ENOSPC after ")]
    for what, args, wanted in fills[: 1 if host.sentry else 2]:  # gVisor bounds files by memory alone
        text = selftest.answer_text(_ask(host, small, "fill", args)[0])
        if not text.startswith(f'"{wanted}'):
            found.append(f"number of {what} under /tmp: {text}, expected {wanted}")
    size = 192 if host.sentry else 48  # gVisor's own kernel counts too
    small = Limits(memory_bytes=size * MIB, processes=8)
    transcript, usage = _ask(host, small, "bomb", (4 * size * MIB,))
    if not usage.oom_kills or transcript.answers:
        found.append(f"memory limit: a value of four times its size in a {size} MiB jail gave {usage.oom_kills} kills")
    if host.sentry:
        return found
    transcript, usage = _ask(host, small, "forks", (64,))
    made = selftest.answer_text(transcript)
    if usage.pids_denied == 0 or made not in [f'{{"i":"{n}"}}' for n in range(10)]:
        found.append(f"process limit: 64 forks in a jail of 8 processes gave {made}, refused {usage.pids_denied}")
    return found


def check(host: DockerHost) -> None:
    """Raises UserError with every deviation in one message."""
    where = f"Docker Engine {host.info.get('ServerVersion')} at {host.url}"
    try:
        found = deviations(host)
    except JailFault as error:
        raise UserError(f"no sandbox can be started: {error}", where, "see the engine's own log") from error
    if found:
        do = "compare with a stock Docker Engine 20.10 or newer; nothing was started"
        if host.sentry:
            do = "give the engine's runsc the runtimeArgs --oci-seccomp and --network=none; nothing was started"
        raise UserError(
            "the sandbox self-test failed, so no untrusted code will be run: " + "; ".join(found),
            f"{where}, runtime {host.info.get('DefaultRuntime')}, effective user {os.geteuid()}",
            do,
        )
