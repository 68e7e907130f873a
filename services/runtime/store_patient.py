"""A store that is waited for: while a service starts, an object store that is down is no reason to exit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TypeVar

from services.runtime.store import ContentAddressed, ObjectStore, StoreUnavailable

T = TypeVar("T")
Wait = Callable[[StoreUnavailable], None]
"""Called after each failed try: returns when the call is to be made again, raises to give up."""


class PatientStore(ContentAddressed):
    """Opens the store and makes every call again for as long as `wait` says so. Errors beside StoreUnavailable pass."""

    def __init__(self, make: Callable[[], ObjectStore], wait: Wait) -> None:
        self._wait = wait
        self._store = self._insist(make)

    def __str__(self) -> str:
        return str(self._store)

    def _insist(self, work: Callable[[], T]) -> T:
        while True:
            try:
                return work()
            except StoreUnavailable as e:
                self._wait(e)

    def put(self, key: str, data: bytes | Path) -> None:
        """See ObjectStore."""
        self._insist(lambda: self._store.put(key, data))

    def put_if_absent(self, key: str, data: bytes | Path) -> bool:
        """See ObjectStore; never made again here, since whose object it is may be unknown after a failure."""
        return self._store.put_if_absent(key, data)

    def get(self, key: str) -> bytes:
        """See ObjectStore."""
        return self._insist(lambda: self._store.get(key))

    def get_into(self, key: str, out: IO[bytes]) -> str:
        """See ObjectStore."""
        start = out.tell()

        def read() -> str:
            out.seek(start)
            out.truncate()
            return self._store.get_into(key, out)

        return self._insist(read)

    def exists(self, key: str) -> bool:
        """See ObjectStore."""
        return self._insist(lambda: self._store.exists(key))

    def list(self, prefix: str = "") -> Iterator[str]:
        """See ObjectStore."""
        yield from self._insist(lambda: [*self._store.list(prefix)])

    def delete(self, key: str) -> None:
        """See ObjectStore."""
        self._insist(lambda: self._store.delete(key))
