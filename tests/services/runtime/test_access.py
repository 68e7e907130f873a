"""Least privilege on a real cluster: each service's credentials can do its part and nothing else."""

import shutil
import threading

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError, TopicAuthorizationFailedError

from schemas import topics
from schemas.access import group_of, principals, rules
from services.recorder.main import keyed, make_core, spec_of
from services.recorder.reading import look
from services.runtime.access_admin import grant
from services.runtime.cluster import connection
from services.runtime.errors import UserError
from services.runtime.loop import Service
from services.runtime.producer import make_producer
from services.runtime.settings import Kafka, Store, load
from services.runtime.store import open_store
from services.runtime.topics_admin import ensure_topics
from tests.apache import apache_kafka
from tests.services.runtime.bus import wait_for

pytestmark = pytest.mark.long


def allowed(operation):
    return {(rule.principal, rule.name) for rule in rules("run") if rule.operation == operation}


def test_nobody_writes_what_the_declaration_does_not_give_them():
    """The rules that the promises stand on, said once more by hand."""
    writes = allowed("write")
    assert {who for who, name in writes if name == topics.VERIFICATION_VERDICT.name} == {"verifier"}
    assert {who for who, name in writes if name == topics.POLICY_PUBLISHED.name} == {"trainer"}
    assert {who for who, name in writes if name == topics.POLICY_GATE.name} == {"gate"}
    assert {who for who, name in writes if name == topics.VERIFICATION_ALARM.name} == {"verifier"}
    assert not {name for who, name in writes if who in ("monitor", "recorder")}
    assert {name for who, name in writes if who == "sandbox" and not name.endswith(".dlq")} == {
        topics.SANDBOX_RESULT.name
    }


def test_every_declared_part_is_in_the_rules():
    for topic in topics.ALL:
        for service in topic.producers:
            assert (service, topic.name) in allowed("write")
        for service in topic.consumers:
            assert (service, topic.name) in allowed("read")
            assert (service, group_of("run", service)) in allowed("read")
    assert {rule.principal for rule in rules("run")} == set(principals())


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, shared_equipment):
    if shutil.which("java") is None:
        pytest.skip("java is absent: Apache Kafka cannot be started")
    folder = tmp_path_factory.mktemp("kafka")
    with apache_kafka(shared_equipment, folder / "cluster", scram=True) as found:
        for name in principals():
            (folder / f"{name}.password").write_text(f"{name}-secret\n")
        yield (
            load(
                run_id="run",
                kafka=Kafka(
                    bootstrap=found.scram,
                    mechanism="SCRAM-SHA-256",
                    username="rs-{service}",
                    password_file=str(folder / "{service}.password"),
                ).model_dump(),
            ),
            found,
        )


@pytest.fixture(scope="module")
def granted(cluster):
    settings, found = cluster
    ensure_topics(load(kafka={"bootstrap": found.bootstrap}))
    count = grant(settings, plain=found.bootstrap)
    assert count == grant(settings, plain=found.bootstrap)  # again changes nothing
    assert count == len(rules("run"))
    return settings


def write(settings, service, topic):
    producer = make_producer(settings, service)
    try:
        producer.send(topic.name, key=b"k", value=b"v").get(timeout=15)
    finally:
        producer.close(timeout=2)


@pytest.mark.timeout(180)
def test_credentials_write_their_own_topics_and_no_others(granted):
    write(granted, "verifier", topics.VERIFICATION_VERDICT)
    write(granted, "trainer", topics.POLICY_PUBLISHED)
    write(granted, "sandbox", topics.SANDBOX_RESULT)
    for service, topic in (
        ("sandbox", topics.VERIFICATION_VERDICT),
        ("sampler", topics.VERIFICATION_VERDICT),
        ("sampler", topics.POLICY_PUBLISHED),
        ("gate", topics.POLICY_PUBLISHED),
        ("verifier", topics.POLICY_GATE),
    ):
        with pytest.raises(TopicAuthorizationFailedError):
            write(granted, service, topic)
    with pytest.raises(KafkaError, match="ClusterAuthorizationFailed"):  # it may write nowhere, so not even begin to
        write(granted, "monitor", topics.ROLLOUT_REQUESTED)


@pytest.mark.timeout(180)
def test_credentials_read_their_own_topics_and_no_others(granted):
    def read(service, topic):
        consumer = KafkaConsumer(**connection(granted.kafka, service), group_id=None)
        try:
            return consumer.end_offsets([TopicPartition(topic.name, 0)], timeout_ms=5_000)
        finally:
            consumer.close(timeout_ms=1000)

    assert read("closure", topics.VERIFICATION_VERDICT)
    assert read("monitor", topics.VERIFICATION_VERDICT)
    with pytest.raises(KafkaError):
        read("sandbox", topics.VERIFICATION_VERDICT)


@pytest.mark.timeout(180)
def test_the_recorder_shares_a_group_reads_everything_and_may_write_nothing(granted, tmp_path):
    settings = granted.model_copy(update={"store": Store(url=f"file://{tmp_path}/store")})
    write(settings, "verifier", topics.VERIFICATION_VERDICT)
    write(settings, "trainer", topics.POLICY_PUBLISHED)
    service = Service(spec_of(settings), make_core, settings)
    thread = threading.Thread(target=service.run, daemon=True)
    thread.start()
    wait_for(lambda: service.ready or not thread.is_alive(), 60, "the recorder to be ready")
    service.stop()
    thread.join(30)
    found = look(open_store(settings.store), "run", keyed)
    assert {place.topic for place in found} >= {topics.VERIFICATION_VERDICT.name, topics.POLICY_PUBLISHED.name}
    with pytest.raises(KafkaError, match="ClusterAuthorizationFailed"):
        write(settings, "recorder", topics.ROLLOUT_REQUESTED)


@pytest.mark.timeout(120)
def test_a_wrong_password_is_one_message(granted, tmp_path):
    (tmp_path / "sampler.password").write_text("wrong")
    wrong = granted.kafka.model_copy(update={"password_file": str(tmp_path / "{service}.password")})
    with pytest.raises((KafkaError, UserError)):
        KafkaConsumer(**connection(wrong, "sampler"), bootstrap_timeout_ms=4000).close()
