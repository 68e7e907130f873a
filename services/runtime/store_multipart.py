"""Multipart uploads to S3: a file part by part through bounded memory, a condition at the end, nothing left behind.

`minio` does not carry a condition to the end of its own multipart upload, so the last request is made here. S3 asks
for `If-None-Match` on CompleteMultipartUpload and on no request before it; of several uploads of one name that end
together exactly one succeeds.
"""

from __future__ import annotations

import contextlib
import math
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from minio.error import S3Error, ServerError
from minio.helpers import md5sum_hash

ABOVE_BYTES = 16 * 1024 * 1024
"""Larger files go up in parts."""
PART_BYTES = 8 * 1024 * 1024
MAX_PARTS = 10_000
ABANDONED = timedelta(days=1)
"""An upload that was begun longer ago than this belongs to a process that died."""
_OURS = re.compile(r"(runs|tasks)/.+|sha256/[0-9a-f]{2}/[0-9a-f]{64}")


def upload(client: Any, once: Any, bucket: str, name: str, path: Path, *, create: bool) -> None:
    """Upload a file of any size, one part in memory at a time; with `create` only where there is no object yet.

    `once` is a client that sends nothing twice. The object appears whole or not at all. Raises what minio raises; the
    parts are given up then, as far as the server still answers.
    """
    size = max(PART_BYTES, math.ceil(path.stat().st_size / MAX_PARTS))
    upload_id = client._create_multipart_upload(bucket, name, {})
    try:
        etags: list[str] = []
        with path.open("rb") as source:
            while part := source.read(size):
                etags.append(client._upload_part(bucket, name, part, None, upload_id, len(etags) + 1))
        _complete(once, bucket, name, upload_id, etags, create)
    except BaseException:
        with contextlib.suppress(Exception):
            once._abort_multipart_upload(bucket, name, upload_id)
        raise


def _complete(once: Any, bucket: str, name: str, upload_id: str, etags: list[str], create: bool) -> None:
    document = ElementTree.Element("CompleteMultipartUpload")
    for number, etag in enumerate(etags, 1):
        part = ElementTree.SubElement(document, "Part")
        ElementTree.SubElement(part, "PartNumber").text = str(number)
        ElementTree.SubElement(part, "ETag").text = f'"{etag}"'
    body = ElementTree.tostring(document)
    headers = {"Content-Type": "application/xml", "Content-MD5": md5sum_hash(body)}
    if create:
        headers["If-None-Match"] = "*"
    response = once._execute("POST", bucket, name, body=body, headers=headers, query_params={"uploadId": upload_id})
    # S3 begins its answer before it is done: an error then comes with status 200.
    root = ElementTree.fromstring(response.data)
    if root.tag.rpartition("}")[2] == "Error":
        raise ServerError(f"the upload could not be completed: {root.findtext('Code')}", 500)


def abort_abandoned(client: Any, bucket: str, prefix: str, older_than: timedelta = ABANDONED) -> int:
    """Give up uploads of ours that nobody will end, a thousand at a time; returns how many.

    Ours: under `prefix`, named as a run's objects are. Credentials that may not look for them find none.
    """
    try:
        found = client._list_multipart_uploads(bucket, prefix=prefix).uploads
    except S3Error as e:
        if e.code in ("AccessDenied", "NotImplemented", "MethodNotAllowed"):
            return 0
        raise
    oldest = datetime.now(UTC) - older_than
    ours = [u for u in found if u.object_name.startswith(prefix) and _OURS.fullmatch(u.object_name[len(prefix) :])]
    count = 0
    for one in ours:
        if one.initiated_time is not None and one.initiated_time < oldest:
            with contextlib.suppress(S3Error):  # ended meanwhile, or another's to end
                client._abort_multipart_upload(bucket, one.object_name, one.upload_id)
                count += 1
    return count
