"""The object store on any S3 server, through the `minio` client package.

Creating is conditional (`If-None-Match: *`), so that nothing is ever overwritten by two writers; large files go up in
parts (`store_multipart`). What a person must mend is a UserError; a server that is down, too busy, out of order or
restarted in the middle of a request is StoreUnavailable, which jobs wait out.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import IO, Any

import urllib3
from minio import Minio
from minio.error import InvalidResponseError, S3Error, ServerError
from minio.helpers import check_bucket_name

from services.runtime import store_multipart
from services.runtime.errors import UserError
from services.runtime.settings import Store
from services.runtime.store import (
    ContentAddressed,
    MissingBucket,
    MissingObject,
    StoreDenied,
    StoreFull,
    StoreUnavailable,
    checked_key,
)

_ABSENT = {"NoSuchKey", "NoSuchObject", "NotFound"}
_ADVICE = {
    "InvalidAccessKeyId": ("the access key is unknown to the server", "correct store.access_key"),
    "SignatureDoesNotMatch": ("the secret key is wrong", "correct store.secret_key"),
    "AccessDenied": (
        "these credentials may not do this",
        "grant the right on the bucket (services.runtime.store_rights says who needs which)",
    ),
}
_THERE = {"BucketAlreadyOwnedByYou", "BucketAlreadyExists"}
_FULL = {"InsufficientStorage", "XMinioStorageFull", "QuotaExceeded"}
_AGAIN = {"SlowDown", "RequestTimeout", "ConditionalRequestConflict", "OperationAborted", "NoSuchUpload"}
"""Codes below 500 after which the same request may succeed; a conflict is settled by asking again who won."""
_SKEWED = "RequestTimeTooSkewed"
_SKEW_S = 300.0
"""Servers refuse a request whose clock is a quarter of an hour from theirs, some without saying why."""
_PIECE = 1024 * 1024


def _clocks_apart(headers: Any) -> float:
    """Seconds by which this clock is ahead of the one that stamped an answer; 0 where it bears no date."""
    try:
        return time.time() - parsedate_to_datetime(headers["Date"]).timestamp()
    except (KeyError, TypeError, ValueError):
        return 0.0


def _client(settings: Store, retries: urllib3.Retry) -> Any:
    timeout = urllib3.Timeout(connect=5.0, read=30.0)
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

    def __init__(self, settings: Store, bucket: str, prefix: str = "", *, create: bool = False) -> None:
        if not settings.endpoint:
            raise UserError("an s3:// store needs an endpoint", "store.endpoint", "set it to HOST:PORT of the server")
        retries = urllib3.Retry(total=2, backoff_factor=0.2, status_forcelist=[500, 502, 503, 504])
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
        if create:
            self._call("create the bucket", "", lambda: self._create(settings.region))
        self._call("open", "", lambda: next(iter(self._client.list_objects(bucket, prefix=self._prefix)), None))
        self._call("open", "", lambda: store_multipart.abort_abandoned(self._client, bucket, self._prefix))

    def __str__(self) -> str:
        return self._where

    def _create(self, region: str) -> None:
        """Make the bucket unless it is there, by whomever."""
        if self._client.bucket_exists(self._bucket):
            return
        try:
            self._client.make_bucket(self._bucket, region)
        except S3Error as e:
            if e.code not in _THERE:
                raise

    def allow(self, policy: Mapping[str, Any]) -> None:
        """Give the bucket this policy document instead of any that it has. Raises UserError when the server refuses."""
        document = json.dumps(policy)
        self._call("set the bucket's policy", "", lambda: self._client.set_bucket_policy(self._bucket, document))

    def _name(self, key: str) -> str:
        return self._prefix + checked_key(key)

    def _call(self, doing: str, key: str, work: Any) -> Any:
        """Run a client call; what a person can mend becomes UserError, an absent object MissingObject."""
        wall, steady = time.time(), time.monotonic()
        try:
            return work()
        except S3Error as e:
            if e.code in _ABSENT:
                raise MissingObject(key, self._where) from e
            if e.code in _FULL:
                raise StoreFull(
                    f"no space left for object {key}", self._where, "free space there, then start again: "
                    "nothing that was stored is lost, and the object will be written again",
                ) from e  # fmt: skip
            if e.code in _AGAIN or e.response.status >= 500:
                raise self._unavailable(doing, key, f"{e.code}: {e.message}") from e
            if e.response.status == 403:
                apart = _clocks_apart(e.response.headers)
                moved = (time.time() - wall) - (time.monotonic() - steady)  # set between signing and the answer
                if abs(apart) > _SKEW_S or abs(moved) > _SKEW_S or e.code == _SKEWED:
                    which = f"a clock {apart / 60:+.0f} min from its own" if abs(apart) > _SKEW_S else "a wrong clock"
                    raise StoreUnavailable(
                        f"the object store refuses {which} (while doing: {doing} {key})",
                        self._where, "set the clock of this machine, or the server's; nothing is lost meanwhile",
                    ) from e  # fmt: skip
            if e.code == "NoSuchBucket":
                raise MissingBucket(
                    f"the bucket does not exist (while doing: {doing} {key})", self._where,
                    "create it (`rollstream prepare --create-buckets` does), or correct store.url",
                ) from e  # fmt: skip
            what, do = _ADVICE.get(e.code, (f"the server refuses this with {e.code}: {e.message}", "see its log"))
            kind = StoreDenied if e.code == "AccessDenied" else UserError
            raise kind(f"{what} (while doing: {doing} {key})", self._where, do) from e
        except ValueError as e:
            raise UserError(
                f"the S3 client refuses this: {e}", self._where, "correct store.url and store.endpoint"
            ) from e
        except (urllib3.exceptions.HTTPError, InvalidResponseError, ServerError, ConnectionError, TimeoutError) as e:
            reason = getattr(e, "reason", None) or e
            raise self._unavailable(doing, key, f"{type(reason).__name__}: {reason}") from e

    def _unavailable(self, doing: str, key: str, why: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"the object store does not answer as it should (while doing: {doing} {key}): {why[:300]}",
            self._where, "start it, or correct store.endpoint and store.secure",
        )  # fmt: skip

    def put(self, key: str, data: bytes | Path) -> None:
        """See ObjectStore."""
        name = self._name(key)
        self._call("put", key, lambda: self._send(self._client, name, data, create=False))

    def put_if_absent(self, key: str, data: bytes | Path) -> bool:
        """See ObjectStore. The last (or only) request is conditional and sent once: the server decides who was first.

        StoreUnavailable leaves open whether the object was made: asking again says that it is there, and whoever must
        know whose it is reads it (checkpoints do).
        """
        name = self._name(key)

        def create() -> bool:
            try:
                self._send(self._once, name, data, create=True)
            except S3Error as e:
                if e.code == "PreconditionFailed":
                    return False
                raise
            return True

        return bool(self._call("create", key, create))

    def _send(self, client: Any, name: str, data: bytes | Path, *, create: bool) -> None:
        if isinstance(data, Path):
            if data.stat().st_size > store_multipart.ABOVE_BYTES:
                store_multipart.upload(self._client, self._once, self._bucket, name, data, create=create)
                return
            data = data.read_bytes()
        client._put_object(self._bucket, name, data, {"If-None-Match": "*"} if create else {})

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

    def get_into(self, key: str, out: IO[bytes]) -> str:
        """See ObjectStore."""
        name = self._name(key)

        def read() -> str:
            seen = hashlib.sha256()
            response = self._client.get_object(self._bucket, name)
            try:
                for piece in response.stream(_PIECE):
                    seen.update(piece)
                    out.write(piece)
            finally:
                response.close()
                response.release_conn()
            return seen.hexdigest()

        return str(self._call("get", key, read))

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
