"""Fixtures' trees laid out once on disk, below the overlay through which many jails are shown them.

No jail can write here (the folder is an overlay's lower layer, and only its owner can enter it), so that what one jail
did is never what another sees. That it still holds what its digest says is checked at first use and every so often.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from services.runtime.jail.limits import JailFault

RECHECK_USES = 64
KEEP = 256
"""Trees on disk beyond those that are shown right now."""
_PART = frozenset({"", ".", ".."})


def tree_digest(files: Mapping[str, str]) -> str:
    """SHA-256 over paths and texts in order of the path; each with its length in bytes, so that no two trees agree."""
    seen = hashlib.sha256(b"tree/1\n")
    for path in sorted(files):
        for raw in (path.encode(), files[path].encode()):
            seen.update(len(raw).to_bytes(8, "little") + raw)
    return seen.hexdigest()


@dataclass
class _Laid:
    files: Mapping[str, str]
    at: Path
    users: int = 0
    uses: int = 0


class Fixtures:
    """Folder of the laid-out trees of one owner. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        """An empty folder: what an earlier owner of the name left is removed. Raises OSError."""
        self.folder = folder
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700, parents=True)
        self._lock = Lock()
        self._laid: OrderedDict[str, _Laid] = OrderedDict()
        self._made = 0

    def show(self, files: Mapping[str, str], digest: str) -> tuple[str, Path]:
        """(key for `leave`, folder to show); laid out at first. `digest` "": the content's own.

        Raises JailFault when the tree cannot be laid out, when one digest stands for two trees, or when the folder no
        longer holds what it should (it is then laid out anew at the next use).
        """
        try:
            key = digest or tree_digest(files)
        except UnicodeEncodeError as error:
            raise JailFault(f"a fixture's tree is not UTF-8: {error}") from error
        with self._lock:
            laid = self._laid.get(key)
            if laid is None:
                laid = self._laid[key] = _Laid(files, self._lay_out(files))
            elif laid.files is not files and laid.files != files:
                raise JailFault(f"digest {key[:16]} stands for two different trees")
            if laid.uses % RECHECK_USES == 0 and not holds(laid.at, laid.files):
                del self._laid[key]  # jails that show it keep it; the folder goes with its owner
                raise JailFault(f"the laid-out tree {key[:16]} is not what its digest says")
            laid.uses += 1
            laid.users += 1
            self._laid.move_to_end(key)
            return key, laid.at

    def leave(self, key: str) -> None:
        """The jail that was shown it is gone."""
        with self._lock:
            laid = self._laid.get(key)
            if laid is not None:
                laid.users = max(0, laid.users - 1)
            idle = [name for name, one in self._laid.items() if one.users == 0]
            for name in idle[: max(0, len(self._laid) - KEEP)]:
                shutil.rmtree(self._laid.pop(name).at, ignore_errors=True)

    def close(self) -> None:
        """Remove everything."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _lay_out(self, files: Mapping[str, str]) -> Path:
        self._made += 1
        at = self.folder / str(self._made)
        building = self.folder / f"building-{self._made}"
        try:
            _write(building, files)
            building.rename(at)
        except (OSError, UnicodeEncodeError) as error:
            shutil.rmtree(building, ignore_errors=True)
            raise JailFault(f"a fixture's tree cannot be laid out: {error}") from error
        return at


def _write(root: Path, files: Mapping[str, str]) -> None:
    # Open modes: in the jail they are the upper layer's, which is the candidate's; here the parent folder is closed.
    _folder(root)
    made = {root}
    for path, text in files.items():
        parts = path.split("/")
        if _PART.intersection(parts) or "\0" in path:
            raise OSError(f"{path!r} is no relative path of a tree")
        at = root
        for part in parts[:-1]:
            at = at / part
            if at not in made:
                _folder(at)
                made.add(at)
        target = at / parts[-1]
        target.write_bytes(text.encode())
        target.chmod(0o666)


def _folder(path: Path) -> None:
    path.mkdir()
    path.chmod(0o777)


def folders_of(files: Mapping[str, str]) -> set[str]:
    """Every folder that the paths name, relative, without the root."""
    found: set[str] = set()
    for path in files:
        while "/" in path:
            path = path.rpartition("/")[0]
            found.add(path)
    return found


def holds(root: Path, files: Mapping[str, str]) -> bool:
    """Whether the folder holds exactly these files with these contents, and nothing else of any kind."""
    left, folders = dict(files), folders_of(files)
    with contextlib.suppress(OSError):
        for folder, names, found in os.walk(root):
            inside = os.path.relpath(folder, root)
            for name in names:
                at = name if inside == "." else f"{inside}/{name}"
                if at not in folders or not stat.S_ISDIR(os.lstat(os.path.join(folder, name)).st_mode):
                    return False
                folders.discard(at)
            for name in found:
                text = left.pop(name if inside == "." else f"{inside}/{name}", None)
                if text is None or not _is(os.path.join(folder, name), text.encode()):
                    return False
        return not left and not folders
    return False


def _is(path: str, content: bytes) -> bool:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        status = os.fstat(fd)
        plain = stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_mode & 0o7777 == 0o666
        return plain and status.st_size == len(content) and os.read(fd, len(content) + 1) == content
    finally:
        os.close(fd)
