"""Sandbox and verifier as processes on the embedded broker: kill -9 changes no verdict and leaves nothing behind."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from infra.broker.testing import running_broker
from schemas import codec
from schemas.record import Record
from schemas.sandbox import SandboxResult
from schemas.topics import ROLLOUT_COMPLETED, SANDBOX_COMMAND, SANDBOX_RESULT, VERIFICATION_VERDICT, Topic
from schemas.verification import VerificationVerdict
from services.runtime.jail.instance import labelled
from services.runtime.settings import RunSettings, load
from services.runtime.store import open_store
from services.runtime.topics_admin import ensure_topics
from services.tasks.fixture import CheckSet
from services.tasks.taskset import CheckSets, TaskSet
from tests.services.jails import ADD_DIFF, add_check, add_fixture, command, completed

ROOT = Path(__file__).parents[3]
START = """
import json, sys
from pathlib import Path
from services.runtime.settings import load
from services.runtime.process import ServiceProcess
from services.{name}.main import main
{before}
settings = load(**json.loads(sys.argv[1]))
sys.exit(main(settings, ServiceProcess("{name}", settings, ready_file=Path(sys.argv[2]))))
"""


class Bus:
    """Broker, store with one task, and the two services."""

    def __init__(self, folder: Path, bootstrap: str, check: CheckSet | None = None, **verifier: Any) -> None:
        self.folder = folder
        self.check = check or add_check()
        self.fixture = add_fixture(self.check)
        tasks = TaskSet(
            "tiny", (self.fixture,), {"train": (self.fixture.task_id,)}, CheckSets("tiny", {"tiny/add": self.check})
        )
        self.taskset = hashlib.sha256(tasks.public_document()).hexdigest()
        self.overrides: dict[str, Any] = {
            "run_id": "run",
            "kafka": {"bootstrap": bootstrap, "partitions": 2, "session_timeout_ms": 2_000},
            "store": {"url": f"file://{folder / 'store'}"},
            "taskset_digest": self.taskset,
            "verifier": verifier,
        }
        self.settings: RunSettings = load(**self.overrides)
        store = open_store(self.settings.store)
        store.put(f"tasks/{self.taskset}/public.json", tasks.public_document())
        store.put(f"tasks/{self.taskset}/hidden.json", tasks.hidden_document())
        ensure_topics(self.settings)
        self.producer = KafkaProducer(bootstrap_servers=bootstrap)
        self.consumers: dict[str, KafkaConsumer] = {}
        self.found: dict[str, list[Any]] = {}
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, before: str = "") -> subprocess.Popen[bytes]:
        """A service as its own process; `before` runs there ahead of its main function."""
        ready = self.folder / f"{name}.{len(self.running)}.ready"
        log = (self.folder / f"{name}.log").open("ab")
        arguments = [
            sys.executable,
            "-c",
            START.format(name=name, before=before),
            json.dumps(self.overrides),
            str(ready),
        ]
        process = subprocess.Popen(arguments, cwd=ROOT, stdout=log, stderr=log)
        self.running.append(process)
        return process

    def send(self, topic: Topic, record: Record) -> None:
        key = record.group_id.encode()  # type: ignore[attr-defined]  # every grouped record has one
        self.producer.send(topic.name, codec.encode(record), key=key, headers=codec.headers(record)).get(10)

    def read(self, topic: Topic, enough: Callable[[list[Any]], bool], seconds: float = 90.0) -> list[Any]:
        """All records of a topic so far, once there are enough."""
        found = self.found.setdefault(topic.name, [])
        if topic.name not in self.consumers:
            consumer = KafkaConsumer(bootstrap_servers=self.settings.kafka.bootstrap, auto_offset_reset="earliest")
            consumer.assign([TopicPartition(topic.name, number) for number in range(topic.partitions(2))])
            self.consumers[topic.name] = consumer
        end = time.monotonic() + seconds
        while not enough(found):
            for records in self.consumers[topic.name].poll(200).values():
                found += [codec.decode(topic.record, record.value) for record in records]
            if time.monotonic() > end:
                logs = [path.read_text()[-2000:] for path in self.folder.glob("*.log")]
                raise AssertionError(f"only {found} on {topic.name}\n" + "\n".join(logs))
        return found

    def until_committed(self, topic: Topic, service: str, count: int, seconds: float = 30) -> None:
        """The service has committed this many records: a restart will not read them again."""
        consumer = KafkaConsumer(
            bootstrap_servers=self.settings.kafka.bootstrap,
            group_id=f"{self.settings.run_id}.{service}",
            enable_auto_commit=False,
        )
        end = time.monotonic() + seconds
        try:
            while sum(consumer.committed(TopicPartition(topic.name, number)) or 0 for number in range(2)) < count:
                assert time.monotonic() < end, f"{service} committed too little on {topic.name}"
                time.sleep(0.05)
        finally:
            consumer.close()

    def close(self) -> None:
        self.producer.close()
        for consumer in self.consumers.values():
            consumer.close()
        for process in self.running:
            process.kill()
            process.wait()


@contextlib.contextmanager
def opened(folder: Path, check: CheckSet | None = None, **verifier: Any) -> Iterator[Bus]:
    """A bus with one task; everything that was started on it is ended."""
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap (bwrap) is not installed: apt-get install bubblewrap")
    with running_broker(folder / "broker") as broker:
        bus = Bus(folder, broker.bootstrap, check, **verifier)
        try:
            yield bus
        finally:
            bus.close()


@pytest.fixture
def bus(tmp_path: Path) -> Iterator[Bus]:
    with opened(tmp_path) as bus:
        yield bus


def test_a_command_and_an_attempt_over_the_bus_with_both_services_killed_and_stopped(bus: Bus) -> None:
    sandbox, verifier = bus.start("sandbox"), bus.start("verifier")
    fixture = bus.fixture
    bus.send(SANDBOX_COMMAND, command(fixture, "test", 0, taskset_digest=bus.taskset))
    bus.send(SANDBOX_COMMAND, command(fixture, "submit", 1, taskset_digest=bus.taskset))
    results: list[SandboxResult] = bus.read(SANDBOX_RESULT, lambda found: len(found) >= 2)
    assert [(r.status, r.observation) for r in results] == [("ok", "FAIL 1,2 want 3 got -1"), ("ok", "")]

    wanted = {}
    for member in range(24):
        diff = ADD_DIFF.replace("a + b", f"a + b + {member % 3} - {member}")
        wanted[f"run/00000000/{member}"] = "pass" if member % 3 == member else "fail"
        bus.send(ROLLOUT_COMPLETED, completed(fixture, member, diff=diff))
    bus.read(VERIFICATION_VERDICT, lambda found: len(found) >= 4)
    bus.until_committed(SANDBOX_COMMAND, "sandbox", 2)
    verifier.kill()
    sandbox.kill()
    verifier.wait()
    sandbox.wait()

    again, sandbox = bus.start("verifier"), bus.start("sandbox")
    bus.send(
        SANDBOX_COMMAND, command(fixture, "edit", 2, json.dumps({"line": 1, "text": "x"}), taskset_digest=bus.taskset)
    )
    verdicts = bus.read(VERIFICATION_VERDICT, lambda found: {one.trial_id for one in found} >= wanted.keys())
    for verdict in verdicts:  # a second one for an attempt is legal after a crash; another one is not
        assert isinstance(verdict, VerificationVerdict)
        assert verdict.verdict == wanted[verdict.trial_id]
    results = bus.read(SANDBOX_RESULT, lambda found: any(one.sequence == 2 for one in found))
    assert next(one for one in results if one.sequence == 2).status == "workspace_lost"

    for process in (again, sandbox):
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    for number in range(4):
        assert not [pid for pid in labelled(f"rollstream-jail-{number}") if _parent_gone(pid)]


def _parent_gone(pid: int) -> bool:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1]) <= 1
    except OSError:
        return False
