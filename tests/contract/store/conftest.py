"""One store per backend: a folder, and a bucket on a real S3 server where the test equipment is there."""

import os
import subprocess
import uuid

import pytest
from minio import Minio

from services.runtime.settings import Store
from services.runtime.store import open_store
from tests.conftest import SHARED

SERVER = SHARED / "s3" / "s3.sh"


class S3Server:
    def __init__(self, folder, endpoint):
        self.folder = folder
        self.endpoint = endpoint
        self.client = Minio(endpoint, access_key="root", secret_key="rootsecret", secure=False, region="us-east-1")

    def bucket(self):
        name = f"b{uuid.uuid4().hex[:12]}"
        self.client.make_bucket(name)
        return name

    def settings(self, **more):
        keys = {"access_key": "root", "secret_key": "rootsecret"}
        return Store(**{"endpoint": self.endpoint, "secure": False, **keys, **more})

    def start(self):
        port = self.endpoint.rpartition(":")[2]
        subprocess.run([SERVER, "start", self.folder, port], check=True, capture_output=True, timeout=60)

    def signal(self, name):
        subprocess.run([SERVER, "stop", self.folder, name], check=True, timeout=30)


def free_port():
    import socket

    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory):
    """A running server; skips with the reason where it cannot run."""
    if not SERVER.is_file():
        pytest.skip(f"no S3 server: {SERVER} is absent")
    folder = tmp_path_factory.mktemp("s3")
    try:
        os.setxattr(folder, "user.rollstream", b"1")
    except OSError as e:
        pytest.skip(f"the S3 server needs extended attributes, {folder} has none: {e}")
    started = subprocess.run([SERVER, "start", folder, str(free_port())], capture_output=True, text=True, timeout=60)
    if started.returncode:
        pytest.skip(f"the S3 server does not start here: {started.stderr[-300:]}")
    server = S3Server(folder, started.stdout.strip())
    yield server
    server.signal("KILL")


@pytest.fixture(params=["local", "s3", "s3-prefix"])
def store_settings(request, tmp_path):
    """Settings of an empty store."""
    if request.param == "local":
        return Store(url=f"file://{tmp_path}/objects")
    server = request.getfixturevalue("s3_server")
    suffix = "/runs/one" if request.param == "s3-prefix" else ""
    return server.settings(url=f"s3://{server.bucket()}{suffix}")


@pytest.fixture
def store(store_settings):
    return open_store(store_settings)
