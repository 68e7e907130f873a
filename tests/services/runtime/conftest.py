"""A broker of its own for each test that asks for a bus."""

import pytest

from infra.broker.testing import running_broker
from tests.services.runtime.bus import Bus


@pytest.fixture
def broker(tmp_path):
    with running_broker(tmp_path / "broker") as running:
        yield running


@pytest.fixture
def bus(broker):
    made = Bus(broker.bootstrap)
    yield made
    made.close()
