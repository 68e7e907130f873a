"""The walls of an unprivileged pod, made on this machine: user 10001 without capabilities and without a way to get any,
control groups and /proc/sys read-only, /proc masked in part, a process namespace of its own. Root makes them."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
USER = 10001
_TOOLS = ("unshare", "mount", "mountpoint", "setpriv", "bwrap")
_WALLS = """
mount -t proc proc /proc
mount --bind /proc/sys /proc/sys; mount -o remount,bind,ro /proc/sys
for path in /proc/keys /proc/timer_list; do mount --bind /dev/null $path; done
for group in /sys/fs/cgroup /sys/fs/cgroup/*; do mountpoint -q $group && mount -o remount,bind,ro $group; done
mkdir -p "$at/tmp"; chmod 1777 "$at/tmp"
"""


def missing() -> str | None:
    """Why there can be none here; None: there can."""
    if os.geteuid() != 0:
        return "only root can make the walls of a pod"
    absent = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if absent:
        return f"not installed: {', '.join(absent)}"
    tried = subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True, text=True)
    return tried.stderr.strip() or "no namespaces" if tried.returncode else None


def command(folder: Path, *arguments: str) -> list[str]:
    """`python ARGUMENTS` in this repository behind those walls; `folder`: an empty one that everybody can enter."""
    drop = f"--reuid {USER} --regid {USER} --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all"
    env = 'env -i HOME="$at/tmp" TMPDIR="$at/tmp" PATH="$PATH" PYTHONDONTWRITEBYTECODE=1'
    script = "\n".join([
        "set -e", f"at={shlex.quote(str(folder))}", *_shown(), _WALLS, f"cd {shlex.quote(str(ROOT))}",
        f'exec {env} setpriv {drop} {shlex.quote(sys.executable)} "$@"',
    ])  # fmt: skip
    return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script, "sh", *arguments]


def _shown() -> Iterator[str]:
    """Where only root can enter, everybody finds an empty place with just the interpreter and this repository."""
    closed = [path for path in map(Path, (sys.base_prefix, sys.prefix, str(ROOT))) if _closed(path)]
    for number, path in enumerate(closed):
        yield f'mkdir "$at/{number}"; mount --bind {shlex.quote(str(path))} "$at/{number}"'
    for top in sorted({path.parts[1] for path in closed}):
        yield f"mount -t tmpfs -o mode=0755 tmpfs /{shlex.quote(top)}"
    for number, path in enumerate(closed):
        yield f'mkdir -p {shlex.quote(str(path))}; mount --bind "$at/{number}" {shlex.quote(str(path))}'


def _closed(path: Path) -> bool:
    return any(not one.stat().st_mode & 0o001 for one in (path, *path.parents))
