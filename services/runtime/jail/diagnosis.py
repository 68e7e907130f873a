"""Why no jail can be started here, in the words of the setting that has to change."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from dataclasses import dataclass

_NEW_USER = 0x10000000
_TRY = (
    "import ctypes, sys\n"
    "libc = ctypes.CDLL(None, use_errno=True)\n"
    f"sys.exit(ctypes.get_errno() if libc.unshare({_NEW_USER}) else 0)\n"
)
_PROFILE = (
    "set the container's securityContext.seccompProfile to {type: Unconfined}, or to {type: Localhost, "
    "localhostProfile: rollstream-jail.json} (infra/k8s/components/seccomp-localhost says where the file goes); "
    "with Docker: --security-opt seccomp=FILE"
)


@dataclass(frozen=True)
class Reason:
    """The parts of a UserError."""

    what: str
    where: str
    do: str


def no_jail(said: str) -> Reason:
    """`said`: what the failed start told. Tries a user namespace, which is what most often is refused."""
    refused = _try_namespace()
    if refused and _filtered():
        return Reason(f"this container's seccomp profile refuses new user namespaces ({said})", "seccomp", _PROFILE)
    if refused in (errno.ENOSPC, errno.EUSERS):
        return Reason(
            f"this machine allows no user namespaces ({said})", "sysctl user.max_user_namespaces", "set it above 0"
        )
    if refused:
        return Reason(
            f"this machine allows no user namespaces without privileges ({said})",
            "sysctl kernel.apparmor_restrict_unprivileged_userns or kernel.unprivileged_userns_clone",
            "allow them for bubblewrap, or run this service as root outside a restricted container",
        )
    if os.geteuid() == 0 and "spawner: " in said:
        return Reason(
            f"root lacks a capability here ({said})",
            "the container's securityContext",
            "run as an unprivileged user (runAsUser: 10001), or add SYS_ADMIN, SETUID, SETGID, SETPCAP, SYS_CHROOT, "
            "CHOWN, KILL and SETFCAP",
        )
    if _filtered():
        return Reason(f"this container's seccomp profile is too narrow ({said})", "seccomp", _PROFILE)
    return Reason(said, "bubblewrap on this machine", "compare with a stock Debian 12 kernel and bubblewrap 0.8")


def _try_namespace() -> int:
    """0, or why the kernel gives none."""
    python = str(getattr(sys, "_base_executable", sys.executable))
    try:
        return subprocess.run([python, "-I", "-S", "-c", _TRY], timeout=20).returncode
    except (OSError, subprocess.TimeoutExpired):
        return 0


def _filtered() -> bool:
    """Whether a system-call filter is on this process."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:
            return any(line.split()[1:] == ["2"] for line in file if line.startswith("Seccomp:"))
    except OSError:
        return False
