"""The walls of an unprivileged pod, made on this machine: user 10001 without capabilities and without a way to get any,
control groups and /proc/sys read-only, /proc masked in part, a process namespace of its own. Root makes them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[2]
USER = 10001
_TOOLS = ("unshare", "mount", "setpriv", "bwrap")
# $1: a folder of ours; then prefix, repository and packages; then the command. What root alone could enter is shown
# where everybody can.
_ENTER = """
set -e
at=$1; mkdir -p $at/python $at/repository $at/packages
mount --bind "$2" $at/python; mount --bind "$3" $at/repository; mount --bind "$4" $at/packages
shift 4
mount -t proc proc /proc
mount --bind /proc/sys /proc/sys; mount -o remount,bind,ro /proc/sys
mount -t tmpfs tmpfs /proc/acpi 2>/dev/null || true
for path in /proc/keys /proc/timer_list; do mount --bind /dev/null $path; done
for group in /sys/fs/cgroup /sys/fs/cgroup/*; do mountpoint -q $group && mount -o remount,bind,ro $group; done
mkdir -p $at/tmp; chmod 1777 $at/tmp
exec env -i HOME=$at/tmp TMPDIR=$at/tmp PATH="$PATH" LD_LIBRARY_PATH=$at/python/lib PYTHONDONTWRITEBYTECODE=1 \
    PYTHONPATH=$at/repository:$at/packages \
    setpriv --reuid @USER@ --regid @USER@ --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all \
    $at/python/bin/@VERSION@ "$@"
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
    """`python ARGUMENTS` behind those walls; `folder`: an empty one that everybody can enter."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    script = _ENTER.replace("@USER@", str(USER)).replace("@VERSION@", version)
    shown = (sys.base_prefix, str(ROOT), sysconfig.get_path("purelib"))
    walls = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script, "sh"]
    return [*walls, str(folder), *shown, *arguments]
