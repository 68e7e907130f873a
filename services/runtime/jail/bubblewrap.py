"""What bubblewrap is told: its command line, the limits of its process, and the environment of the interpreter."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
from pathlib import Path

from services.runtime.errors import UserError
from services.runtime.jail import tree
from services.runtime.jail.limits import MIB, Limits

_STACK_BYTES = 8 * MIB
SIGNALS = 128
"""Queued signals, and so timers too, of one jail."""
_SPARE_PROCESSES = 16


def find_bwrap() -> str:
    """Path of bubblewrap 0.8 or newer. Raises UserError."""
    path = shutil.which("bwrap")
    if path is None:
        raise UserError("bubblewrap (bwrap) is missing, so no sandbox can be made", do="apt-get install bubblewrap")
    try:
        text = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"bubblewrap does not run: {error}", path, "apt-get install --reinstall bubblewrap") from error
    version = re.search(r"(\d+)\.(\d+)", text)
    if version is None or (int(version[1]), int(version[2])) < (0, 8):
        raise UserError(
            f"bubblewrap is {text.strip() or 'of unknown version'}, 0.8 or newer is needed", path, "upgrade it"
        )
    return path


def can_disable_namespaces(settings: str = "/proc/sys/user") -> bool:
    """Whether bubblewrap can tell the kernel that no namespace may be made below a jail's: containers show these
    settings read-only. There the system-call filter alone refuses them, which the self-test tries."""
    try:
        return not os.statvfs(settings).f_flag & os.ST_RDONLY
    except OSError:
        return False


def bwrap_arguments(
    bwrap: str,
    root: Path,
    limits: Limits,
    tmp: Path | None = None,
    proxy: Path | None = None,
    disable_namespaces: bool = True,
) -> list[str]:
    """Command line of one jail: the interpreter is process 1, `root` is all of the host that is named.

    `tmp`: a folder that becomes /tmp; None: bubblewrap makes a tmpfs of its own, which knows no limit of inodes.
    `proxy`: the socket of a proxy that the jail may speak to.
    `-s -P -S` keep every path of the host and of the environment away from the interpreter as `-I` would, but leave
    PYTHONHASHSEED in force; the environment holds nothing else (`environment`).
    """
    scratch = ["--size", str(limits.tmp_bytes), "--tmpfs", "/tmp"] if tmp is None else ["--bind", str(tmp), "/tmp"]
    way = [] if proxy is None else ["--ro-bind", str(proxy), tree.PROXY]
    nested = ["--disable-userns"] if disable_namespaces else []
    return [
        bwrap, "--unshare-all", "--unshare-user", *nested, "--as-pid-1", "--die-with-parent",
        "--new-session", "--hostname", "jail", "--ro-bind", str(root), "/", *scratch, *way, "--chdir", "/tmp",
        "--seccomp", "3", "--", tree.PYTHON, "-s", "-P", "-S", "-B", tree.WORKER,
    ]  # fmt: skip


def environment(hash_seed: int | None) -> dict[str, str]:
    """All of the environment: nothing, or the hash seed. Raises ValueError outside 0..2**32-1."""
    if hash_seed is None:
        return {}
    if not 0 <= hash_seed < 2**32:
        raise ValueError(f"hash seed {hash_seed} is not within 0..2**32-1")
    return {"PYTHONHASHSEED": str(hash_seed)}


def rlimits(limits: Limits, own_user: bool, grouped: bool) -> list[tuple[int, int]]:
    """(resource, soft and hard bound). `own_user`: nobody else runs as the slot's user; `grouped`: a control group
    bounds memory and processes, so that these are a second wall that is only met when the first is gone."""
    found = [
        (resource.RLIMIT_NOFILE, limits.files),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_CPU, limits.cpu_s),
        (resource.RLIMIT_STACK, _STACK_BYTES),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_NICE, 0),
        (resource.RLIMIT_RTPRIO, 0),
    ]
    if own_user:  # both count per user
        found.append((resource.RLIMIT_SIGPENDING, SIGNALS))
        found.append((resource.RLIMIT_NPROC, limits.processes + _SPARE_PROCESSES))
    if not grouped:
        found.append((resource.RLIMIT_AS, limits.memory_bytes))
    return found
