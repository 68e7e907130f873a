"""Who reads and writes what in the object store, and the bucket policies that say so to an S3 server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from services.runtime.errors import UserError
from services.runtime.settings import HIDDEN_READERS, RunSettings
from services.runtime.store import hidden_section, place_of


@dataclass(frozen=True)
class Rights:
    """Key prefixes (a `*` stands for anything) that a service reads, and those that it also creates and deletes."""

    reads: tuple[str, ...]
    writes: tuple[str, ...] = ()


_PREPARED = "runs/*/prepared.json"
RIGHTS = {
    "dispatch": Rights(("tasks/*", _PREPARED)),
    "sampler": Rights(("tasks/*", "runs/*", "sha256/*"), ("sha256/*",)),
    "sandbox": Rights(("tasks/*", _PREPARED)),
    "verifier": Rights(("tasks/*", "sha256/*", _PREPARED)),
    "trainer": Rights(("runs/*", "sha256/*"), ("runs/*", "sha256/*")),
    "gate": Rights(("tasks/*", "runs/*", "sha256/*")),
    "recorder": Rights(("recorded/*",), ("recorded/*",)),
    "operator": Rights(("*",), ("*",)),
}
"""Of the run's store, by service; closure and admission do not use it. `operator`: whoever prepares, copies or looks at
a run."""
HIDDEN_RIGHTS = {**{name: Rights(("tasks/*",)) for name in HIDDEN_READERS}, "operator": Rights(("*",), ("*",))}
"""Of the store of the hidden checks."""
_READ = ["s3:GetObject"]
_CREATE = ["s3:PutObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"]
_DELETE = ["s3:DeleteObject"]
DELETES = frozenset({"trainer", "operator"})
"""Who may delete what it may write: old checkpoints go, and nothing else ever does."""


def policies(settings: RunSettings, principal: Callable[[str], str] = lambda user: user) -> dict[str, dict[str, Any]]:
    """Bucket name -> policy document; `principal` turns an access key into what the server calls its owner (an ARN).

    Raises UserError unless hidden checks have a bucket of their own and every service a login of its own.
    """
    public, hidden = settings.store, hidden_section(settings)
    if hidden is public or _place(hidden.url)[0] == _place(public.url)[0]:
        raise UserError(
            "the hidden checks have no bucket of their own", "hidden_store.url", "name another bucket than store.url"
        )
    if "{service}" not in public.access_key or "{service}" not in hidden.access_key:
        raise UserError(
            "all services share one login, so that no rule can tell them apart",
            "store.access_key, hidden_store.access_key",
            "write {service} where the service's name belongs",
        )
    made = {}
    for section, rights in ((public, RIGHTS), (hidden, HIDDEN_RIGHTS)):
        bucket, prefix = _place(section.url)
        users = {name: principal(section.access_key.replace("{service}", name)) for name in rights}
        made[bucket] = _policy(bucket, prefix, users, rights)
    return made


def _place(url: str) -> tuple[str, str]:
    kind, place = place_of(url)
    bucket, _, prefix = place.partition("/")
    prefix = prefix.strip("/")
    if kind != "s3" or set(prefix) & set("*?$"):  # a policy reads these as patterns
        raise UserError(f"{url!r} is no bucket", "store.url, hidden_store.url", "use s3://bucket/prefix")
    return bucket, f"{prefix}/" if prefix else ""


def _policy(bucket: str, prefix: str, users: dict[str, str], rights: dict[str, Rights]) -> dict[str, Any]:
    root = f"arn:aws:s3:::{bucket}"
    # Listing makes an absent object "not found" instead of "denied"; what it shows are names, mostly of digests.
    listing = ["s3:ListBucket", "s3:GetBucketLocation", "s3:ListBucketMultipartUploads"]
    statements = [_allow([*users.values()], listing, [root])]
    for name, held in rights.items():
        user = [users[name]]
        statements.append(_allow(user, _READ, [f"{root}/{prefix}{part}" for part in held.reads]))
        if held.writes:
            actions = _CREATE + (_DELETE if name in DELETES else [])
            statements.append(_allow(user, actions, [f"{root}/{prefix}{part}" for part in held.writes]))
    return {"Version": "2012-10-17", "Statement": statements}


def _allow(users: list[str], actions: list[str], resources: list[str]) -> dict[str, Any]:
    return {"Effect": "Allow", "Principal": {"AWS": users}, "Action": actions, "Resource": resources}
