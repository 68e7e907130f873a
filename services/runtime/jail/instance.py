"""Which jail-owning process this is on its machine, and the sweep of what killed ones left behind.

An instance is a number with a lock file that the kernel lets go when its process dies. It owns the slots (user ids,
control groups) of that number; whoever gets the number next removes what its dead owner left.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import tempfile
import time
from pathlib import Path

from services.runtime.errors import UserError
from services.runtime.jail import cgroup

SLOTS = 250
FIRST_UID = 60_001
MAX_INSTANCES = 16
TREES, COPIES = "trees-", "copies-"


def temporary() -> Path:
    """The folder for temporary files. Raises UserError where there is none."""
    named = {os.path.abspath(os.environ[name]) for name in ("TMPDIR", "TEMP", "TMP") if os.environ.get(name)}
    with contextlib.suppress(FileNotFoundError):
        found = tempfile.gettempdir()
        if found in named | {"/tmp", "/var/tmp", "/usr/tmp"}:  # else it is the working folder, which is no such place
            return Path(found)
    raise UserError(
        "no folder for temporary files can be written",
        ", ".join(sorted(named)) or "/tmp and /var/tmp",
        "mount a writable /tmp (in a pod: an emptyDir), or set TMPDIR to a folder that this user may write",
    )


def lock_folder(run: Path = Path("/run")) -> Path:
    """Folder of the lock files: one per user of this machine (or of this container, whose /run may be read-only)."""
    if os.geteuid() == 0 and os.access(run, os.W_OK):
        return run / "rollstream-jails"
    return temporary() / f"rollstream-jails-{os.geteuid()}"


class Instance:
    """A held instance number. `label(…)` names everything that belongs to it."""

    def __init__(self, folder: Path | None = None) -> None:
        """Take the first free number. Raises UserError when all are taken or the folder is not ours."""
        self._folder = folder or lock_folder()
        try:
            with contextlib.suppress(FileExistsError):
                self._folder.mkdir(mode=0o700)
            if self._folder.lstat().st_uid != os.geteuid():
                raise UserError(
                    "the folder of the sandbox locks belongs to another user", str(self._folder), "remove it"
                )
            for number in range(MAX_INSTANCES):
                fd = self._try(number)
                if fd is not None:
                    self.number, self._fd = number, fd
                    return
        except OSError as error:
            raise UserError(
                f"the sandbox locks cannot be made: {error.strerror}",
                str(self._folder),
                f"let user {os.geteuid()} write to {self._folder.parent}, on a file system with space",
            ) from error
        raise UserError(
            f"all {MAX_INSTANCES} sandbox instances of this machine are in use",
            str(self._folder),
            "stop a sandbox or verifier service",
        )

    def _try(self, number: int) -> int | None:
        fd = os.open(self._folder / f"{number}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return None
        return fd

    @property
    def label(self) -> str:
        """Name of this instance's processes (argv[0]) and prefix of its control groups."""
        return _label(self.number)

    def file(self, name: str) -> Path:
        """Path of a filter or socket of this instance; removed with it, or by whoever starts after its death."""
        return self._folder / f"{self.number}.{name}"

    def _remove_files(self, number: int) -> list[str]:
        found = []
        for path in self._folder.glob(f"{number}.*"):
            if path.name != f"{number}.lock":
                path.unlink(missing_ok=True)
                found.append(f"file {path.name}")
        return found

    def trees(self, cache: Path) -> Path:
        """Folder below `cache` for the fixtures' trees of this instance."""
        return cache / f"{TREES}{self.number}"

    def copies(self, cache: Path) -> Path:
        """Folder below `cache` for this instance's own copies of the staged interpreter."""
        return cache / f"{COPIES}{self.number}"

    def uid(self, slot: int) -> int:
        """User id of a slot; 0 means "keep the caller's", where only root could change it."""
        return FIRST_UID + self.number * SLOTS + slot if os.geteuid() == 0 else 0

    def sweep(self, layout: cgroup.Layout, cache: Path) -> list[str]:
        """Remove what dead instances left: processes, control groups, fixtures' trees. Returns what was found."""
        found: list[str] = []
        for number in range(MAX_INSTANCES):
            fd = None if number == self.number else self._try(number)
            if number != self.number and fd is None:
                continue  # alive
            try:
                found += _sweep_one(_label(number), layout)
                found += self._remove_files(number)
                for kind in (TREES, COPIES):
                    with contextlib.suppress(FileNotFoundError):
                        shutil.rmtree(cache / f"{kind}{number}")
                        found.append(f"folder {kind}{number}")
            finally:
                if fd is not None:
                    os.close(fd)
        return found

    def sweep_own(self, layout: cgroup.Layout, deadline_s: float = 3.0) -> None:
        """Remove everything of this instance's, once its spawner has ended."""
        end = time.monotonic() + deadline_s
        while _sweep_one(self.label, layout) and time.monotonic() < end:
            time.sleep(0.005)

    def release(self) -> None:
        """Give the number back, and remove its files."""
        self._remove_files(self.number)
        os.close(self._fd)


def _label(number: int) -> str:
    """The locks are per user, so the names are too: nobody (root least of all) sweeps what another user's hold."""
    user = os.geteuid()
    return f"{cgroup.PREFIX}{number}" if user == 0 else f"{cgroup.PREFIX}u{user}-{number}"


def _sweep_one(label: str, layout: cgroup.Layout) -> list[str]:
    found = []
    for pid in labelled(label):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
            found.append(f"process {pid}")
    for group in cgroup.leftovers(layout, f"{label}-"):
        if group.remove():
            found.append(f"control group {label}")
    return found


def labelled(label: str) -> list[int]:
    """Process ids whose argv[0] is exactly `label`, in this very process namespace.

    A container's processes show on its machine too, under names that its own locks gave them.
    """
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                raw = Path("/proc", entry, "cmdline").read_bytes()
                if raw.split(b"\0", 1)[0] == label.encode() and not _elsewhere(entry):
                    found.append(int(entry))
    return found


def _elsewhere(pid: str) -> bool:
    status = Path("/proc", pid, "status").read_text("ascii", "replace")
    numbers = next((line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")), [])
    return len(numbers) > 1
