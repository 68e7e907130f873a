"""What the engine is asked for: one container per jail, closed in every way that the engine knows."""

from __future__ import annotations

import json
import resource
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from services.runtime.jail import seccomp, tree
from services.runtime.jail.backend import Options
from services.runtime.jail.bubblewrap import environment, rlimits
from services.runtime.jail.docker.group import Evidence
from services.runtime.jail.docker.image import Image
from services.runtime.jail.limits import Limits

_MASKED = "SCMP_CMP_MASKED_EQ"
_RLIMITS = {
    resource.RLIMIT_NOFILE: "nofile", resource.RLIMIT_CORE: "core", resource.RLIMIT_FSIZE: "fsize",
    resource.RLIMIT_CPU: "cpu", resource.RLIMIT_STACK: "stack", resource.RLIMIT_MEMLOCK: "memlock",
    resource.RLIMIT_MSGQUEUE: "msgqueue", resource.RLIMIT_NICE: "nice", resource.RLIMIT_RTPRIO: "rtprio",
    resource.RLIMIT_SIGPENDING: "sigpending", resource.RLIMIT_NPROC: "nproc",
}  # fmt: skip
MASKED = (
    # as the engine does itself
    "/proc/asound", "/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
    "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi",
    # What tells of the whole machine, which neighbours can change: load, locks, counters, budgets, pressure.
    "/proc/locks", "/proc/loadavg", "/proc/stat", "/proc/meminfo", "/proc/vmstat", "/proc/uptime", "/proc/pressure",
    "/proc/diskstats", "/proc/interrupts", "/proc/softirqs", "/proc/slabinfo", "/proc/zoneinfo", "/proc/buddyinfo",
    "/proc/pagetypeinfo", "/proc/schedstat", "/proc/key-users", "/proc/vmallocinfo", "/proc/sysvipc", "/proc/fs",
    "/proc/irq", "/proc/bus", "/proc/sys", "/sys",
)  # fmt: skip
_AUTOMATIC = ("PATH", "HOSTNAME")
"""Variables that the engine adds; a name without a value takes one away. `HOME=/` alone comes from runc itself."""


def profile(network: bool, sentry: bool) -> str:
    """The system-call filter of `seccomp.py` in the engine's words. No architecture is named: only the native one.

    `sentry`: gVisor knows one answer of filters only (EPERM), where libc needs ENOSYS to fall back from clone3 to
    clone; the namespaces that clone3 could make there are gVisor's own imitations, and a futex that is found by its
    inode is found within one container alone.
    """
    listed = [_rule(name, {"action": "SCMP_ACT_ALLOW"}, conditions) for name, conditions in seccomp.allowed(network)]
    if sentry:
        listed += [_rule(name, {"action": "SCMP_ACT_ALLOW"}, ()) for name in ("clone3", "statx", "futex")]
    else:
        listed.append(_rule(seccomp.private_futex()[0], {"action": "SCMP_ACT_ALLOW"}, seccomp.private_futex()[1]))
        for name, error, conditions in seccomp.answered():
            listed.append(_rule(name, {"action": "SCMP_ACT_ERRNO", "errnoRet": error}, conditions))
    return json.dumps({"defaultAction": "SCMP_ACT_ERRNO", "syscalls": listed})


def _rule(name: str, action: dict[str, Any], conditions: Sequence[seccomp.Compare]) -> dict[str, Any]:
    said = [{"index": one.arg, "value": one.datum_a, "valueTwo": one.datum_b, "op": _MASKED} for one in conditions]
    return {"names": [name], **action, **({"args": said} if said else {})}


def is_sentry(runtime: str) -> bool:
    """Whether the runtime is gVisor, whose own kernel in user space (the sentry) serves the container."""
    return runtime.startswith("runsc")


def command(image: Image, options: Options) -> list[str]:
    """The worker's command line: `-s -P -S` for the reason that `bwrap_arguments` gives.

    In a user's image pytest lies where only `site` finds it.
    """
    site = [] if options.runtime == "pytest" and image.worker[:1] == ("-c",) else ["-S"]
    return [image.python, "-s", "-P", *site, "-B", *image.worker]


def container(
    image: Image,
    argv: list[str],
    uid: int,
    limits: Limits,
    options: Options,
    evidence: Evidence,
    labels: Mapping[str, str],
    runtime: str,
    proxy: Path | None = None,
) -> dict[str, Any]:
    """The body of the engine's `create` request (API 1.41)."""
    given = [f"{name}={value}" for name, value in environment(options.hash_seed).items()]
    absent = [*_AUTOMATIC, *image.variables] if image.worker else []  # the first question needs the image's PATH
    return {
        "Image": image.name,
        "Entrypoint": argv[:1],
        "Cmd": argv[1:],
        "User": f"{uid}:{uid}",
        "Env": [*absent, *given],
        "Hostname": "jail",
        "WorkingDir": "/tmp",
        "OpenStdin": True,
        "StdinOnce": True,
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "NetworkDisabled": True,
        "Healthcheck": {"Test": ["NONE"]},
        "Labels": dict(labels),
        "HostConfig": _host(uid, limits, evidence, runtime, options.runtime == "network", proxy),
    }


def _host(
    uid: int, limits: Limits, evidence: Evidence, runtime: str, network: bool, proxy: Path | None
) -> dict[str, Any]:
    tmp = f"rw,nosuid,nodev,noexec,size={limits.tmp_bytes},nr_inodes={limits.tmp_inodes},mode=0700,uid={uid},gid={uid}"
    bounds = rlimits(limits, own_user=True, grouped=True)
    host: dict[str, Any] = {
        "NetworkMode": "none",
        "Sysctls": {"net.ipv4.ping_group_range": "1 0"},  # the engine would open it to everybody
        "IpcMode": "none",  # private, and no /dev/shm to write to
        "ReadonlyRootfs": True,
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges", f"seccomp={profile(network, is_sentry(runtime))}"],
        "PidsLimit": evidence.process_limit,
        "Memory": evidence.memory_limit,
        "MemorySwap": evidence.memory_limit,
        "NanoCpus": 1_000_000_000,
        "Tmpfs": {"/tmp": tmp},
        "MaskedPaths": list(MASKED),
        "Init": True,
        "Ulimits": [{"Name": _RLIMITS[kind], "Soft": value, "Hard": value} for kind, value in bounds],
        "LogConfig": {"Type": "none"},
        "RestartPolicy": {"Name": "no"},
    }
    if evidence.parent:
        host["CgroupParent"] = evidence.parent
    if proxy is not None:
        # The one thing of the host that a container is ever shown: a socket to speak to, through which no file passes.
        host["Mounts"] = [{"Type": "bind", "Source": str(proxy), "Target": tree.PROXY, "ReadOnly": True}]
    if runtime:
        host["Runtime"] = runtime
    return host
