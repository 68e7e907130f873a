"""The object store as a folder: a temporary file, an fsync, one atomic rename or link."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from services.runtime.errors import UserError
from services.runtime.scratch import locked_file, sweep_files
from services.runtime.store import ContentAddressed, MissingObject, StoreFull, StoreUnavailable, checked_key

_TEMPORARY = ".incoming"
_PIECE = 1024 * 1024
_AWAY = {errno.EIO, errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENODEV}
"""What a file system over a network says while it does not answer."""


class LocalStore(ContentAddressed):
    """Objects are files under `root`. `fsync` False trades safety against a power cut for speed; a crash of the
    process alone never loses or tears an object either way. `read_only`: nothing is made, the folder is as it is."""

    def __init__(self, root: Path, *, fsync: bool = True, read_only: bool = False) -> None:
        self._root = root
        self._fsync = fsync
        self._read_only = read_only
        if read_only:
            return
        try:
            (root / _TEMPORARY).mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise UserError(
                f"the object store folder cannot be made: {e}", str(root), "choose another store.url"
            ) from e
        sweep_files(root / _TEMPORARY)  # those of processes that died

    def __str__(self) -> str:
        return f"file://{self._root}"

    def _path(self, key: str) -> Path:
        return self._root / checked_key(key)

    def put(self, key: str, data: bytes | Path) -> None:
        """See ObjectStore."""
        path = self._path(key)
        with self._written(data, key) as temporary:
            path.parent.mkdir(parents=True, exist_ok=True)
            os.replace(temporary, path)
        self._sync_folder(path.parent)

    def put_if_absent(self, key: str, data: bytes | Path) -> bool:
        """See ObjectStore. A hard link fails where a file is, so that two writers cannot both win."""
        path = self._path(key)
        if path.exists():
            return False
        with self._written(data, key) as temporary:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(temporary, path)
            except FileExistsError:
                return False
        self._sync_folder(path.parent)
        return True

    @contextlib.contextmanager
    def _written(self, data: bytes | Path, key: str) -> Iterator[Path]:
        """The data as a complete temporary file, gone afterwards. ENOSPC anywhere inside becomes StoreFull."""
        temporary: Path | None = None
        try:
            fd, temporary = locked_file(self._root / _TEMPORARY)
            with os.fdopen(fd, "wb") as out:
                if isinstance(data, bytes):
                    out.write(data)
                else:
                    with data.open("rb") as source:
                        shutil.copyfileobj(source, out, _PIECE)
                out.flush()
                os.fchmod(out.fileno(), 0o644)
                if self._fsync:
                    os.fsync(out.fileno())
                yield temporary  # still open: closed, it is nobody's
        except OSError as e:
            raise self._told(e, f"object {key} cannot be written") from e
        finally:
            if temporary:
                temporary.unlink(missing_ok=True)

    def _told(self, e: OSError, what: str) -> OSError | UserError:
        """The error as a person or a waiting job needs it; as it is where it says nothing of the store."""
        if e.errno in (errno.ENOSPC, errno.EDQUOT):
            return StoreFull(
                f"no space left: {what}", str(self._root), "free space there, then start again: "
                "nothing that was stored is lost, and the object will be written again",
            )  # fmt: skip
        if e.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            return UserError(f"{what}: {e.strerror}", str(self._root), "check rights")
        if e.errno in _AWAY or not self._is_there:
            return StoreUnavailable(f"{what}: {e.strerror}", str(self._root), "mount it again, or restore the folder")
        return e

    @property
    def _is_there(self) -> bool:
        """Whether the store's own folder is: one that was unmounted holds no objects, and lost none."""
        return (self._root if self._read_only else self._root / _TEMPORARY).is_dir()

    def _absent(self, key: str) -> Exception:
        gone = FileNotFoundError(errno.ENOENT, "the store's folder is gone")
        return MissingObject(key, str(self)) if self._is_there else self._told(gone, f"object {key} cannot be read")

    def _sync_folder(self, folder: Path) -> None:
        if not self._fsync:
            return
        while True:
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
            if folder == self._root:
                return
            folder = folder.parent

    def get(self, key: str) -> bytes:
        """See ObjectStore."""
        try:
            return self._path(key).read_bytes()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise self._absent(key) from None
        except OSError as e:
            raise self._told(e, f"object {key} cannot be read") from e

    def get_into(self, key: str, out: IO[bytes]) -> str:
        """See ObjectStore."""
        seen = hashlib.sha256()
        try:
            source = self._path(key).open("rb")
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            raise self._absent(key) from None
        except OSError as e:
            raise self._told(e, f"object {key} cannot be read") from e
        with source:
            while piece := source.read(_PIECE):
                seen.update(piece)
                out.write(piece)
        return seen.hexdigest()

    def exists(self, key: str) -> bool:
        """See ObjectStore."""
        there = self._path(key).is_file()
        if not there and not self._is_there:
            raise self._absent(key)
        return there

    def list(self, prefix: str = "") -> Iterator[str]:
        """See ObjectStore."""
        if not self._is_there:
            raise self._absent(prefix)
        folder = self._root / prefix.rpartition("/")[0]
        found = []
        for here, folders, files in os.walk(folder):
            folders[:] = [f for f in folders if f != _TEMPORARY]
            base = Path(here).relative_to(self._root).as_posix()
            found += [name if base == "." else f"{base}/{name}" for name in files]
        yield from sorted(key for key in found if key.startswith(prefix))

    def delete(self, key: str) -> None:
        """See ObjectStore."""
        self._path(key).unlink(missing_ok=True)
