"""One broker for all tests, emptied for each; that of KAFKA_BOOTSTRAP where set; a broker of its own to kill."""

import os
import time

import pytest
from kafka import KafkaAdminClient

from infra.broker.testing import running_broker
from tests.services.runtime.bus import RUN, Bus


def empty(bootstrap):
    """Remove every topic and our groups, so that a test begins as on a new broker."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        groups = [g["group_id"] for g in admin.list_groups() if g["group_id"].startswith(f"{RUN}.")]
        if groups:
            admin.delete_groups(groups)
        ours = [t for t in admin.list_topics() if not t.startswith("__")]
        if ours:
            admin.delete_topics(ours)
        deadline = time.monotonic() + 20
        while set(admin.list_topics()) & set(ours):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        admin.close()


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory):
    if elsewhere := os.environ.get("KAFKA_BOOTSTRAP"):
        yield elsewhere
        return
    with running_broker(tmp_path_factory.mktemp("bus") / "broker", housekeeping_ms=500) as running:
        yield running.bootstrap


@pytest.fixture
def make_bus(bootstrap):
    """Buses with settings of their own on the emptied broker."""
    empty(bootstrap)
    made = []

    def make(**settings):
        made.append(Bus(bootstrap, **settings))
        return made[-1]

    yield make
    for bus in made:
        bus.close()


@pytest.fixture
def bus(make_bus):
    return make_bus()


@pytest.fixture
def mortal(tmp_path):
    """A broker process that a test may kill, and a bus on it. Always the embedded one."""
    with running_broker(tmp_path / "broker") as running:
        made = Bus(running.bootstrap)
        yield running, made
        made.close()
