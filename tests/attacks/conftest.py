"""Every attack meets every kind of jail; the owner of the jails lives as long as its kind is tried."""

import contextlib
from collections.abc import Iterator

import pytest

from services.runtime.jail.backend import Backend
from services.runtime.settings import Isolation
from tests.services import docker_engine
from tests.services.jails import jail_host

KINDS = ["bubblewrap", "docker"]


@contextlib.contextmanager
def backend_of(request: pytest.FixtureRequest, slots: int) -> Iterator[Backend]:
    """An owner of jails of the kind that a fixture's parameter names; skips with the reason where there is none."""
    if request.param == "bubblewrap":
        with contextlib.contextmanager(jail_host)(slots) as host:
            yield host
        return
    from services.runtime.jail.docker.host import DockerHost

    url = request.getfixturevalue("engine")
    with DockerHost(Isolation(backend="docker", docker_url=url), slots) as host:
        yield host


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    yield from docker_engine.shared_engine(tmp_path_factory)


@pytest.fixture(scope="package", params=KINDS)
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    with backend_of(request, 8) as backend:
        yield backend
