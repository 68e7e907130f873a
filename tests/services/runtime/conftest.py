"""A broker of its own for each test that asks for a bus; that of KAFKA_BOOTSTRAP, emptied first, where set."""

import os
import time

import pytest
from kafka import KafkaAdminClient

from infra.broker.testing import running_broker
from tests.services.runtime.bus import RUN, Bus


class Elsewhere:
    """Somebody's Apache Kafka: the same tests, except those that kill the broker."""

    def __init__(self, bootstrap):
        self.bootstrap = bootstrap
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
                time.sleep(0.1)
        finally:
            admin.close()

    def kill(self):
        pytest.skip("this test kills its broker: the embedded one only")


@pytest.fixture
def broker(tmp_path):
    if bootstrap := os.environ.get("KAFKA_BOOTSTRAP"):
        yield Elsewhere(bootstrap)
        return
    with running_broker(tmp_path / "broker") as running:
        yield running


@pytest.fixture
def bus(broker):
    made = Bus(broker.bootstrap)
    yield made
    made.close()
