"""One jail owner for the whole folder: starting it costs more than a test."""

from collections.abc import Iterator

import pytest

from services.runtime.jail.launcher import JailHost
from tests.services.jails import jail_host


@pytest.fixture(scope="package")
def host() -> Iterator[JailHost]:
    yield from jail_host(8)
