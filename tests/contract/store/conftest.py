"""One store per backend: a folder, and a bucket on a real S3 server where the test equipment is there."""

import pytest

from services.runtime.settings import Store
from services.runtime.store import open_store
from tests import s3


@pytest.fixture(scope="session")
def s3_server(shared_equipment, tmp_path_factory):
    """A running server; skips with the reason where it cannot run."""
    with s3.s3_server(shared_equipment, tmp_path_factory.mktemp("s3")) as server:
        yield server


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
