"""Whole runs on a real Apache Kafka: one node; and three, of which the active controller and another one are killed."""

import contextlib
import os
import signal
import time

import pytest
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError

from schemas import topics
from schemas.group import GroupAdmission
from schemas.policy import PolicyPublished, TrainingUpdate
from services.runtime.ledger import audit
from tests.apache import apache_kafka
from tests.contract.broker.conftest import find_config
from tests.e2e.conftest import running, tiny


def settings_of(root, updates, **kafka):
    return tiny(
        root,
        kafka=kafka,
        dispatch={"updates": updates, "group_size": 4, "batch_groups": 2},
        sampler={"engine": "synthetic", "synthetic_min_s": 0.05, "synthetic_max_s": 0.4},
        trainer={"kind": "synthetic", "synthetic_update_s": 0.4},
        closure={"deadline_s": 120.0},
    )


def conclude(live, updates):
    """The end of the run, and that everything was counted once."""
    live.until(lambda: live.stack.finished, 200, "the end of the run")
    live.stack.stop_services()
    live.watcher.settle()
    records = list(live.watcher.records)
    result = audit(records)
    assert result.balanced, "\n".join(result.lines())
    assert [r.policy_version for r in records if isinstance(r, TrainingUpdate)] == list(range(1, updates + 1))
    published = [r.policy_version for r in records if isinstance(r, PolicyPublished)]
    assert sorted(set(published)) == list(range(updates + 1))
    decided = [r.group_id for r in records if isinstance(r, GroupAdmission) and r.decision == "admitted"]
    assert len(decided) == len(set(decided))
    trained = [group for r in records if isinstance(r, TrainingUpdate) for group in r.group_ids]
    assert len(trained) == len(set(trained)) == 2 * updates


@pytest.mark.timeout(300)
def test_a_run_on_one_node(cache, equipment, tmp_path):
    with (
        apache_kafka(equipment, tmp_path / "cluster") as cluster,
        running(settings_of(tmp_path / "run", 4, bootstrap=cluster.bootstrap)) as live,
    ):
        conclude(live, 4)


@pytest.fixture
def three(equipment, tmp_path):
    with apache_kafka(equipment, tmp_path / "cluster", nodes=3, heap="256m") as cluster:
        yield cluster


def calmly(cluster):
    """Whether all copies are in sync; False while the cluster does not say."""
    with contextlib.suppress(KafkaError):
        return cluster.whole()
    return False


@pytest.mark.timeout(500)
def test_a_run_outlives_the_active_controller_and_a_broker_that_dies_in_a_rebalance(cache, three, tmp_path):
    updates = 40
    settings = settings_of(tmp_path / "run", updates, bootstrap=three.bootstrap, replication=3)
    with running(settings) as live:
        assert min_insync(three) == 2
        done = lambda: live.count(TrainingUpdate)  # noqa: E731
        live.until(lambda: done() >= 2, 120, "the first updates")
        first = three.controller()
        three.kill(first)
        before = done()
        live.until(lambda: done() >= before + 3, 120, "updates without the controller")
        assert three.controller() != first
        three.revive(first)
        live.until(lambda: calmly(three), 120, "all copies in sync again")
        second = first % 3 + 1
        for name in ("sampler", "closure"):  # their groups are formed anew while a broker of them dies
            os.kill(live.stack.supervisor.processes[name].pid, signal.SIGKILL)
        time.sleep(1.0)
        three.kill(second)
        before = done()
        assert before < updates - 6, "the run ended before the second kill; give it more updates"
        live.until(lambda: done() >= before + 3, 120, "updates without the second broker")
        three.revive(second)
        conclude(live, updates)


def min_insync(cluster):
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        asked = [ConfigResource(ConfigResourceType.TOPIC, topics.GROUP_CLOSED.name)]
        return int(find_config(admin.describe_configs(asked, config_filter="all"), "min.insync.replicas"))
    finally:
        admin.close()
