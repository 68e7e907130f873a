"""One jail owner per backend; the engine of the docker ones is the tests' own."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from services.runtime.jail.backend import Backend, open_backend
from services.runtime.settings import Isolation
from tests.services.docker_engine import shared_engine


@pytest.fixture(scope="session")
def docker_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the session's engine."""
    yield from shared_engine(tmp_path_factory)


@pytest.fixture(scope="session", params=["bubblewrap", "docker"])
def isolation(request: pytest.FixtureRequest) -> Isolation:
    """Settings of a backend that can run here; skips with the reason where it cannot."""
    if request.param == "docker":
        return Isolation(backend="docker", docker_url=request.getfixturevalue("docker_engine"))
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap (bwrap) is not installed: apt-get install bubblewrap")
    return Isolation(backend="bubblewrap")


@pytest.fixture(scope="session")
def backend(isolation: Isolation) -> Iterator[Backend]:
    """An owner with four slots."""
    with open_backend(isolation, 4) as found:
        yield found
