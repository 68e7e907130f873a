"""Object storage behind one small interface: whole objects, conditional create, content addressing."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from services.runtime.errors import UserError
from services.runtime.settings import Store

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*")


class MissingObject(KeyError):
    """There is no object under this key."""

    def __init__(self, key: str, where: str) -> None:
        super().__init__(key)
        self.key = key
        self.where = where

    def __str__(self) -> str:
        return f"there is no object {self.key} in {self.where}"


class CorruptObject(RuntimeError):
    """The bytes under a content-addressed key are not those that its name promises."""


class StoreFull(UserError):
    """The disk under the store is full; nothing was half-written and nothing that was stored is lost."""


class StoreUnavailable(UserError):
    """The store does not answer. While a service runs this passes by itself: its jobs may wait and try again."""


class ObjectStore(Protocol):
    """Objects appear whole or not at all. Keys are `name/name/…` of letters, digits, dot, dash and underscore."""

    def put(self, key: str, data: bytes | Path) -> None:
        """Store an object, replacing any under the same key. Raises StoreFull, UserError."""

    def put_if_absent(self, key: str, data: bytes | Path) -> bool:
        """Store an object only where there is none; False, changing nothing, when there is."""

    def get(self, key: str) -> bytes:
        """The object's bytes. Raises MissingObject."""

    def exists(self, key: str) -> bool: ...

    def list(self, prefix: str = "") -> Iterator[str]:
        """Keys that begin with `prefix`, in order."""

    def delete(self, key: str) -> None:
        """Remove an object; removing one that is not there is no error."""

    def put_content(self, data: bytes | Path) -> str:
        """Store bytes under their own digest and return that key; storing the same bytes again costs one look."""

    def get_content(self, key: str) -> bytes:
        """The bytes under a content key. Raises CorruptObject when they do not match it, MissingObject."""


def content_key(digest: str) -> str:
    """`sha256/ab/abcdef…` of a hexadecimal SHA-256."""
    return f"sha256/{digest[:2]}/{digest}"


def digest_of(data: bytes | Path) -> str:
    """Hexadecimal SHA-256 of bytes or of a file."""
    if isinstance(data, bytes):
        return hashlib.sha256(data).hexdigest()
    with data.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def checked_key(key: str) -> str:
    """The key itself. Raises ValueError for one that could leave the store or that no backend promises to keep."""
    if len(key) > 512 or not _KEY.fullmatch(key):
        raise ValueError(f"{key!r} is no object key: parts of letters, digits, '.', '-' and '_', joined by '/'")
    return key


class ContentAddressed:
    """The content-addressed half of the interface, the same over every backend."""

    def put_content(self: ObjectStore, data: bytes | Path) -> str:
        key = content_key(digest_of(data))
        if not self.exists(key):
            self.put(key, data)
        return key

    def get_content(self: ObjectStore, key: str) -> bytes:
        data = self.get(key)
        if content_key(hashlib.sha256(data).hexdigest()) != key:
            raise CorruptObject(f"object {key} does not hold what its name promises; restore it from a copy")
        return data


def open_store(settings: Store) -> ObjectStore:
    """The store of `settings.url`. Raises UserError for an unknown form or when the store cannot be reached."""
    parts = urlsplit(settings.url)
    if parts.scheme == "file" and parts.path and not parts.netloc:
        from services.runtime.store_local import LocalStore

        return LocalStore(Path(parts.path))
    if parts.scheme == "s3" and parts.netloc:
        from services.runtime.store_s3 import S3Store

        return S3Store(settings, parts.netloc, parts.path.strip("/"))
    raise UserError(
        f"{settings.url!r} is no object store", "store.url", "use file:///absolute/folder or s3://bucket/prefix"
    )
