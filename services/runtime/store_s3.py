"""The object store on any S3 server, through the `minio` client package."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import urllib3
from minio import Minio
from minio.error import InvalidResponseError, S3Error
from minio.helpers import check_bucket_name

from services.runtime.errors import UserError
from services.runtime.settings import Store
from services.runtime.store import ContentAddressed, MissingObject, StoreFull, StoreUnavailable, checked_key

_ABSENT = {"NoSuchKey", "NoSuchObject", "NotFound"}
_EXISTS = {"PreconditionFailed", "ConditionalRequestConflict"}
_ADVICE = {
    "NoSuchBucket": ("the bucket does not exist", "create the bucket, or correct store.url"),
    "InvalidAccessKeyId": ("the access key is unknown to the server", "correct store.access_key"),
    "SignatureDoesNotMatch": ("the secret key is wrong", "correct store.secret_key"),
    "AccessDenied": ("these credentials may not do this", "grant get, put, list and delete on the bucket"),
}
_FULL = {"InsufficientStorage", "XMinioStorageFull", "EntityTooLarge", "QuotaExceeded"}


def _client(settings: Store, retries: urllib3.Retry) -> Any:
    timeout = urllib3.Timeout(connect=5.0, read=60.0)
    return Minio(
        settings.endpoint,
        access_key=settings.access_key,
        secret_key=settings.secret_key,
        region=settings.region,
        secure=settings.secure,
        http_client=urllib3.PoolManager(timeout=timeout, retries=retries, maxsize=8),
    )


class S3Store(ContentAddressed):
    """Objects of one bucket under an optional prefix. The region is passed, since asking for it needs another right."""

    def __init__(self, settings: Store, bucket: str, prefix: str = "") -> None:
        if not settings.endpoint:
            raise UserError("an s3:// store needs an endpoint", "store.endpoint", "set it to HOST:PORT of the server")
        retries = urllib3.Retry(total=3, backoff_factor=0.2, status_forcelist=[500, 502, 503, 504])
        self._bucket = bucket
        self._prefix = f"{prefix}/" if prefix else ""
        self._where = f"s3://{bucket}/{self._prefix} at {settings.endpoint}"
        try:
            check_bucket_name(bucket)
            self._client = _client(settings, retries)
        except ValueError as e:
            raise UserError(f"not a possible S3 store: {e}", self._where, "correct store.url or store.endpoint") from e
        # A conditional PUT that is silently sent again could be beaten by its own first try.
        self._once = _client(settings, urllib3.Retry(total=0))
        self._call("open", "", lambda: next(iter(self._client.list_objects(bucket, prefix=self._prefix)), None))

    def __str__(self) -> str:
        return self._where

    def _name(self, key: str) -> str:
        return self._prefix + checked_key(key)

    def _call(self, doing: str, key: str, work: Any) -> Any:
        """Run a client call; what a person can mend becomes UserError, an absent object MissingObject."""
        try:
            return work()
        except S3Error as e:
            if e.code in _ABSENT:
                raise MissingObject(key, self._where) from e
            if e.code in _FULL:
                raise StoreFull(
                    f"no space left for object {key}", self._where, "free space there, then start again"
                ) from e
            if e.code in _ADVICE:
                what, do = _ADVICE[e.code]
                raise UserError(f"{what} (while doing: {doing} {key})", self._where, do) from e
            raise
        except ValueError as e:
            raise UserError(
                f"the S3 client refuses this: {e}", self._where, "correct store.url and store.endpoint"
            ) from e
        except (urllib3.exceptions.HTTPError, InvalidResponseError, OSError) as e:
            raise StoreUnavailable(
                f"the object store does not answer (while doing: {doing} {key}): {type(e).__name__}",
                self._where, "start it, or correct store.endpoint and store.secure",
            ) from e  # fmt: skip

    def put(self, key: str, data: bytes | Path) -> None:
        """See ObjectStore."""
        name = self._name(key)
        if isinstance(data, Path):
            self._call("put", key, lambda: self._client.fput_object(self._bucket, name, str(data)))
        else:
            self._call("put", key, lambda: self._client.put_object(self._bucket, name, io.BytesIO(data), len(data)))

    def put_if_absent(self, key: str, data: bytes | Path) -> bool:
        """See ObjectStore. One conditional PUT (`If-None-Match: *`): the server decides who was first."""
        name = self._name(key)
        body = data if isinstance(data, bytes) else data.read_bytes()

        def create() -> bool:
            try:
                # One PUT request for the whole body: a multipart upload would not carry the condition to its end.
                self._once._put_object(self._bucket, name, body, {"If-None-Match": "*"})
            except S3Error as e:
                if e.code in _EXISTS:
                    return False
                raise
            return True

        return bool(self._call("create", key, create))

    def get(self, key: str) -> bytes:
        """See ObjectStore."""
        name = self._name(key)

        def read() -> bytes:
            response = self._client.get_object(self._bucket, name)
            try:
                return bytes(response.read())
            finally:
                response.close()
                response.release_conn()

        data: bytes = self._call("get", key, read)
        return data

    def exists(self, key: str) -> bool:
        """See ObjectStore."""
        name = self._name(key)
        try:
            self._call("look at", key, lambda: self._client.stat_object(self._bucket, name))
        except MissingObject:
            return False
        return True

    def list(self, prefix: str = "") -> Iterator[str]:
        """See ObjectStore."""
        start = self._prefix + prefix
        listed = self._call(
            "list", prefix, lambda: list(self._client.list_objects(self._bucket, start, recursive=True))
        )
        yield from sorted(o.object_name[len(self._prefix) :] for o in listed if not o.is_dir)

    def delete(self, key: str) -> None:
        """See ObjectStore."""
        name = self._name(key)
        self._call("delete", key, lambda: self._client.remove_object(self._bucket, name))
