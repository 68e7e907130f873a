"""A real S3 server for tests: from the optional equipment, with users and bucket policies, killed at the end."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from minio import Minio

from services.runtime.settings import RunSettings, Store, load
from services.runtime.store_rights import RIGHTS, policies


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


class S3Server:
    """A running server; `root` may do everything."""

    def __init__(self, script: Path, folder: Path, endpoint: str) -> None:
        self._script = script
        self.folder = folder
        self.endpoint = endpoint
        self.client = Minio(endpoint, access_key="root", secret_key="rootsecret", secure=False, region="us-east-1")

    def bucket(self) -> str:
        """A new, empty bucket."""
        name = f"b{uuid.uuid4().hex[:12]}"
        self.client.make_bucket(name)
        return name

    def settings(self, **more: object) -> Store:
        """Settings of a store there, as root unless `more` says otherwise."""
        keys = {"access_key": "root", "secret_key": "rootsecret"}
        return Store(**{"endpoint": self.endpoint, "secure": False, **keys, **more})  # type: ignore[arg-type]  # by name

    def start(self) -> None:
        """Again, on the same data and port."""
        port = self.endpoint.rpartition(":")[2]
        subprocess.run([self._script, "start", self.folder, port], check=True, capture_output=True, timeout=60)

    def signal(self, name: str) -> None:
        """End it with this signal, and wait for its end."""
        subprocess.run([self._script, "stop", self.folder, name], check=True, timeout=30)

    def least_privilege(self, secrets: Path) -> RunSettings:
        """Two new buckets, a user with its own secret for every service, and the generated policies: the settings."""
        prefix = f"u{uuid.uuid4().hex[:6]}"
        secrets.mkdir(parents=True, exist_ok=True)
        for service in RIGHTS:
            (secrets / service).write_text(f"secret-of-{service}\n")
            subprocess.run(
                [self._script, "user", self.folder, f"{prefix}-{service}", f"secret-of-{service}"],
                check=True, capture_output=True, timeout=60,
            )  # fmt: skip
        common = {
            "endpoint": self.endpoint,
            "secure": False,
            "access_key": f"{prefix}-{{service}}",
            "secret_key_file": str(secrets / "{service}"),
        }
        settings = load(
            None,
            store={"url": f"s3://{self.bucket()}/team", **common},
            hidden_store={"url": f"s3://{self.bucket()}", **common},
        )
        for bucket, policy in policies(settings).items():
            self.client.set_bucket_policy(bucket, json.dumps(policy))
        return settings


@contextlib.contextmanager
def s3_server(equipment: Path, folder: Path) -> Iterator[S3Server]:
    """A server on `folder`; skips with the reason where it cannot run."""
    script = equipment / "s3" / "s3.sh"
    if not script.is_file():
        pytest.skip(f"no S3 server: {script} is absent")
    try:
        os.setxattr(folder, "user.rollstream", b"1")
    except OSError as e:
        pytest.skip(f"the S3 server needs extended attributes, {folder} has none: {e}")
    started = subprocess.run([script, "start", folder, str(free_port())], capture_output=True, text=True, timeout=60)
    if started.returncode:
        pytest.skip(f"the S3 server does not start here: {started.stderr[-300:]}")
    server = S3Server(script, folder, started.stdout.strip())
    try:
        yield server
    finally:
        server.signal("KILL")
