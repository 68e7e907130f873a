"""Temporary folders and files that know whether their owner lives: what a killed process leaves, the next one removes.

Each is locked by its owner while it is in use, and the kernel lets that lock go however the owner ends.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

_LIVE: set[Scratch] = set()
_SWEPT: set[Path] = set()
_FILES = "held-"


class Scratch:
    """A temporary folder, open to this user alone; gone when it is closed, at the end of the process at the latest.

    `kind` becomes part of its name. `within`: where it lies, else the machine's place for temporary files. The first
    one that a process makes in a place removes those of owners that are no more.
    """

    def __init__(self, kind: str, within: Path | None = None) -> None:
        home = _home(within)
        if home not in _SWEPT:
            _SWEPT.add(home)
            sweep(within)
        self.path, self._fd = _locked_folder(f"{_prefix()}{kind}-", home)
        self._owner = os.getpid()
        _LIVE.add(self)

    def close(self) -> None:
        """Remove it with all that is in it. Nothing when that was done, and in a copy of the process (a fork)."""
        if self not in _LIVE or os.getpid() != self._owner:
            return
        _LIVE.discard(self)
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._fd)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self.close()


@atexit.register
def close_all() -> None:
    """Remove every folder of this process; to be called by whoever ends it without the interpreter's own end."""
    for scratch in list(_LIVE):
        scratch.close()


def sweep(within: Path | None = None) -> int:
    """Remove the folders of owners that are no more; how many there were."""
    found = 0
    for path in _home(within).glob(f"{_prefix()}*"):
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if os.fstat(fd).st_uid == os.geteuid():
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path, ignore_errors=True)
                    found += 1
            finally:
                os.close(fd)
    return found


@contextlib.contextmanager
def importing_torch_compiler() -> Iterator[None]:
    """Around the import of what imports torch's compiler (transformers does): that makes a folder among the temporary
    files, which would stay. Nothing here is compiled."""
    name = "TORCHINDUCTOR_CACHE_DIR"
    if name in os.environ:
        yield
        return
    with Scratch("torch") as folder:
        os.environ[name] = str(folder)
        try:
            yield
        finally:
            del os.environ[name]


def _home(within: Path | None) -> Path:
    return within or Path(tempfile.gettempdir())


def _prefix() -> str:
    return f"rollstream-scratch-{os.geteuid()}-"


def _locked_folder(prefix: str, home: Path) -> tuple[Path, int]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=home))
        with contextlib.suppress(FileNotFoundError):  # a sweep was faster than the lock
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            if _locked(fd, path):
                return path, fd
            os.close(fd)


def locked_file(folder: Path) -> tuple[int, Path]:
    """A new file and the number under which it is open for writing. It is this process's until it is renamed, removed,
    or closed, and then `sweep_files` may take it."""
    while True:
        fd, name = tempfile.mkstemp(prefix=_FILES, dir=folder)
        if _locked(fd, Path(name)):
            return fd, Path(name)
        os.close(fd)


def sweep_files(folder: Path) -> None:
    """Remove the files of `locked_file` whose owners are no more."""
    for path in folder.glob(f"{_FILES}*"):
        with contextlib.suppress(OSError):
            fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                if stat.S_ISREG(os.fstat(fd).st_mode):
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    path.unlink()
            finally:
                os.close(fd)


def _locked(fd: int, path: Path) -> bool:
    """Lock a new file or folder; False when a sweep took it before. Where nothing can be locked, nothing is swept."""
    with contextlib.suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_EX)
    return path.exists()
