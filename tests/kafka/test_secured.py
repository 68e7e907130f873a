"""The whole quickstart where everybody logs in as themselves over TLS, with the generated rules and nothing more."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import GroupAuthorizationFailedError, KafkaError, TopicAuthorizationFailedError

from schemas import topics
from schemas.access import group_of
from services.runtime.cluster import connection
from services.runtime.producer import make_producer
from services.runtime.settings import Kafka, load
from tests.e2e.test_run import TINY

ROOT = Path(__file__).parents[2]
STORE_SECRET = "store-secret-that-nobody-may-print"
UPDATES = 3


def rollstream(*arguments, timeout=120):
    """A command in a process of its own; everything that it printed is kept for the search for secrets."""
    done = subprocess.run(
        [sys.executable, "-m", "services.cli", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=timeout
    )
    PRINTED.append(done.stdout + done.stderr)
    return done


PRINTED: list[str] = []


def toml(values):
    return "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())


@pytest.fixture(scope="module")
def finished(secured, cache, tmp_path_factory):
    """A configuration, the folder of its finished run, and a backup of it."""
    folder = tmp_path_factory.mktemp("run")
    config, root = folder / "run.toml", folder / "run"
    text = TINY.format(lag=1).replace("updates = 2", f"updates = {UPDATES}")
    synthetic = '[trainer]\nkind = "synthetic"\nsynthetic_update_s = 0.2\n'
    store = f"[store]\n{toml({'secret_key': STORE_SECRET})}"
    config.write_text(f"{text}{synthetic}{store}[kafka]\n{toml(secured.kafka())}")
    plain = secured.cluster.bootstrap
    made = rollstream("topics", "--config", str(config), "--create", "--grant", "--plain", plain)
    assert made.returncode == 0, made.stdout + made.stderr
    done = rollstream("run", "--config", str(config), "--run-dir", str(root), timeout=240)
    logs = "\n".join(f"--- {p.name}\n{p.read_text()[-1500:]}" for p in sorted((root / "logs").glob("*.log")))
    assert done.returncode == 0, f"{done.stdout}{done.stderr}{logs}"
    return folder, root


@pytest.mark.timeout(360)
def test_the_quickstart_runs_with_the_generated_rules(finished):
    _, root = finished
    audited = rollstream("audit", str(root))
    assert audited.returncode == 0, audited.stdout + audited.stderr
    assert ": balanced" in audited.stdout
    tapped = rollstream("tap", "training.update", "--run-dir", str(root), "--json")
    assert tapped.returncode == 0, tapped.stderr
    versions = [json.loads(line)["record"]["policy_version"] for line in tapped.stdout.splitlines()]
    assert versions == list(range(1, UPDATES + 1))
    for command in (("trial", "tiny/00000000/0", "--json"), ("verdicts", "--json")):
        looked = rollstream(*command, "--run-dir", str(root))
        assert looked.returncode == 0, looked.stderr
    copied = rollstream("backup", str(root.parent / "backup"), "--run-dir", str(root))
    assert copied.returncode == 0, copied.stdout + copied.stderr


def test_no_service_was_ever_denied_anything(finished):
    _, root = finished
    for log in (root / "logs").glob("*.log"):
        assert "Authorization" not in log.read_text(), log


def test_no_secret_stands_anywhere_in_the_run_or_was_printed(finished, secured):
    """Logs, run.toml, report, backup, topics' files, and what every command printed."""
    folder, root = finished
    rollstream("topics", "--config", str(root / "run.toml"))
    secrets = [*secured.passwords.values(), STORE_SECRET]
    found = [path for path in folder.rglob("*") if path.is_file() and path != folder / "run.toml"]
    assert len(found) > 20
    for path in found:
        content = path.read_bytes()
        assert not [s for s in secrets if s.encode() in content], path
    said = "\n".join(PRINTED)
    assert not [s for s in secrets if s in said]


@pytest.mark.timeout(120)
def test_a_wrong_password_is_told_without_showing_it(finished, secured, tmp_path):
    _, root = finished
    wrong = "wrong-password-that-nobody-may-print"
    (tmp_path / "monitor.password").write_text(wrong)
    environment = {**os.environ, "ROLLSTREAM_KAFKA__PASSWORD_FILE": str(tmp_path / "{service}.password")}
    done = subprocess.run(
        [sys.executable, "-m", "services.cli", "audit", str(root)],
        cwd=ROOT, capture_output=True, text=True, timeout=100, env=environment,
    )  # fmt: skip
    assert done.returncode == 2, done.stdout + done.stderr
    assert "what to do" in done.stderr
    assert "rs-monitor" in done.stderr
    assert wrong not in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.timeout(120)
def test_nobody_joins_the_group_of_another_or_writes_its_dead_letters(finished, secured):
    settings = load(run_id="tiny", kafka=Kafka(**secured.kafka()).model_dump())

    def commit(service, group):
        consumer = KafkaConsumer(**connection(settings.kafka, service), group_id=group_of("tiny", group))
        try:
            return consumer.committed(TopicPartition(topics.ROLLOUT_REQUESTED.name, 0), timeout_ms=10_000)
        finally:
            consumer.close(timeout_ms=1000)

    commit("sampler", "sampler")
    with pytest.raises((GroupAuthorizationFailedError, KafkaError), match="GroupAuthorizationFailed"):
        commit("sampler", "closure")

    def letter(service, topic):
        producer = make_producer(settings, service)
        try:
            producer.send(topics.dead_letter(topic), key=b"k", value=b"v").get(timeout=15)
        finally:
            producer.close(timeout=2)

    letter("sandbox", topics.SANDBOX_COMMAND)
    for service, topic in (("sandbox", topics.ROLLOUT_COMPLETED), ("sampler", topics.VERIFICATION_VERDICT)):
        with pytest.raises(TopicAuthorizationFailedError):
            letter(service, topic)
    with pytest.raises(KafkaError, match="AuthorizationFailed"):  # the operator makes topics and writes nothing
        letter("operator", topics.SANDBOX_COMMAND)
