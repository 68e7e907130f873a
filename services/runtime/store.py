"""Object storage behind one small interface: whole objects, conditional create, content addressing.

    tasks/<digest>/public.json, certificates.json      what agents may see of the tasks (tasks/<digest>/hidden.json: see
                                                       `open_hidden`)
    runs/<run>/checkpoints/<version>.json              manifests, each created last and once
    runs/<run>/prepared.json                           what the run begins with: see `services.runtime.prepared`
    runs/<run>/plans/<version>.json                    the update under way
    recorded/<run>/<topic>/<partition>/…               what the recorder keeps of the topics
    sha256/ab/abcdef…                                  everything else, by content: weights, large candidates

Who reads and writes which of these: `services.runtime.store_rights`.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Protocol

from services.runtime.errors import UserError
from services.runtime.settings import RunSettings, Store

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


class MissingBucket(UserError):
    """The server knows no such bucket: a mistake, unless somebody is about to make it."""


class StoreDenied(UserError):
    """These credentials may not do this: a mistake, unless somebody is about to give them the right."""


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

    def get_into(self, key: str, out: IO[bytes]) -> str:
        """Write the object's bytes into an open file, piece by piece, and return their hexadecimal SHA-256.

        What was written is worth something only when nothing was raised and the digest is the expected one.
        Raises MissingObject.
        """

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
            self.put_if_absent(key, data)  # whoever was first wrote the same bytes
        return key

    def get_content(self: ObjectStore, key: str) -> bytes:
        data = self.get(key)
        if content_key(hashlib.sha256(data).hexdigest()) != key:
            raise CorruptObject(f"object {key} does not hold what its name promises; restore it from a copy")
        return data


def file_url(folder: Path) -> str:
    """The URL of the store in a folder. Its path stands there as it is: no character of it means anything else."""
    return f"file://{folder.resolve()}"


def place_of(url: str) -> tuple[str, str]:
    """("file", absolute path) or ("s3", bucket/prefix) of a store's URL. Raises UserError for another form.

    All that follows the two slashes is the place, letter for letter: `#`, `%` and `?` are part of names.
    """
    kind, _, place = url.partition("://")
    if kind == "file" and place.startswith("/") and "\0" not in place:
        return kind, place
    if kind == "s3" and place.split("/")[0]:
        return kind, place
    raise UserError(f"{url!r} is no object store", "store.url", "use file:///absolute/folder or s3://bucket/prefix")


class _Bounded(io.BytesIO):
    """Takes no more than `most` bytes."""

    def __init__(self, key: str, most: int) -> None:
        super().__init__()
        self._key = key
        self._most = most

    def write(self, data: Any) -> int:
        if self.tell() + len(data) > self._most:
            raise CorruptObject(f"object {self._key} has more than {self._most} bytes")
        return super().write(data)


def get_bounded(store: ObjectStore, key: str, most: int, digest: str | None = None) -> bytes:
    """An object of which nobody knows how large it is, read no further than `most` bytes; `digest`: hexadecimal
    SHA-256 that it must have. Raises CorruptObject, MissingObject, ValueError for what is no key."""
    out = _Bounded(key, most)
    if (found := store.get_into(checked_key(key), out)) != (digest or found):
        raise CorruptObject(f"object {key} in {store} is damaged: it does not hold what its name promises")
    return out.getvalue()


def principal() -> str:
    """As whom a command logs in: whoever owns the run, or the service in whose container it is called."""
    return os.environ.get("ROLLSTREAM_PRINCIPAL") or "operator"


def open_store(settings: Store, service: str = "", *, create: bool = False, read_only: bool = False) -> ObjectStore:
    """The store of `settings.url`, with the login of `service` (else `principal`); `create` makes a missing bucket,
    `read_only` touches nothing where a look at a folder would make and sweep its place for new objects.

    Raises UserError for an unknown form, a missing bucket, refused credentials; StoreUnavailable when nobody answers.
    """
    kind, place = place_of(settings.url)
    if kind == "file":
        from services.runtime.store_local import LocalStore

        return LocalStore(Path(place), read_only=read_only)
    from services.runtime.store_s3 import S3Store

    bucket, _, prefix = place.partition("/")
    return S3Store(login(settings, service or principal()), bucket, prefix.strip("/"), create=create)


def hidden_section(settings: RunSettings) -> Store:
    """Where the hidden checks lie: `[hidden_store]`, or the run's only store when that names none."""
    return settings.hidden_store if settings.hidden_store.url else settings.store


def open_hidden(settings: RunSettings, service: str = "", *, read_only: bool = False) -> ObjectStore:
    """The store that holds `tasks/<digest>/hidden.json`. Only the verifier, and whoever prepares or copies a run, opens
    it; the other services are not given its login. Raises as open_store does."""
    return open_store(hidden_section(settings), service, read_only=read_only)


def login(settings: Store, service: str) -> Store:
    """The settings with the access key and secret of one service. Raises UserError for a file that cannot be read."""
    key = settings.access_key.replace("{service}", service)
    secret = settings.secret_key
    if key and not (secret or settings.secret_key_file):
        raise UserError(
            f"no secret key is given for {key!r}",
            settings.url,
            "set ROLLSTREAM_STORE__SECRET_KEY (or …_HIDDEN_STORE__…) or secret_key_file, or give the configuration "
            "that holds it: a run's own folder keeps no secrets",
        )
    if settings.secret_key_file:
        path = Path(settings.secret_key_file.replace("{service}", service))
        try:
            secret = path.read_text().strip()
        except (OSError, UnicodeDecodeError) as e:
            raise UserError(
                f"the object store's secret key of {service} cannot be read: {e}",
                f"secret_key_file = {path}",
                "mount the secret, or correct the path",
            ) from e
    return settings.model_copy(update={"access_key": key, "secret_key": secret, "secret_key_file": ""})
