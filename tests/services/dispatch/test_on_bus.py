"""Protects a run against kill -9 of dispatch, closure, admission and gate, as real processes on a real broker."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from infra.broker.testing import ROOT, running_broker
from schemas import topics
from schemas.group import GroupAdmission
from schemas.policy import EvaluationResult, PolicyGate, PolicyPublished
from schemas.record import Record
from schemas.rollout import RolloutRequested
from services.runtime.checkpoints import CheckpointMeta, publish_checkpoint
from services.runtime.context import ServiceContext, ServiceSpec
from services.runtime.core import BaseCore, Effects, Message, Output
from services.runtime.ledger import audit
from services.runtime.logs import Log
from services.runtime.loop import Service
from services.runtime.process import ServiceProcess
from services.runtime.settings import RunSettings, dump_toml, load
from services.runtime.store import open_store
from services.runtime.tap import Tap
from services.runtime.topics_admin import ensure_topics
from services.tasks.taskset import TaskSet
from tests.services.closure.records import RUN, completed, update, verdict
from tests.services.dispatch.world import FIXTURES, HELD_OUT

UPDATES, BATCH = 10, 3
KILLED = ("dispatch", "closure", "admission", "gate")


class Neighbours(BaseCore):
    """Stands in the log for sampler, verifier and trainer: answers every request, updates on every batch."""

    def __init__(self, context: ServiceContext) -> None:
        self.context = context
        self.random = Random(4)
        self.known: set[str] = set()
        self.waiting: list[tuple[int, list[Output]]] = []
        self.admitted: dict[str, GroupAdmission] = {}
        self.version = -1

    def publish(self) -> list[Output]:
        self.version += 1
        meta = CheckpointMeta(RUN, self.version)
        key, digest = publish_checkpoint(self.context.store, {"state.bin": str(self.version).encode()}, meta)
        record = PolicyPublished(RUN, self.version, key, digest, self.version - 1 if self.version else None, None, 0)
        return [Output(topics.POLICY_PUBLISHED, record)]

    def caught_up(self, now_ms: int) -> Effects:
        return Effects(outputs=self.publish())

    def handle(self, message: Message, now_ms: int) -> Effects:
        record = message.record
        if isinstance(record, RolloutRequested) and record.trial_id not in self.known:
            self.known.add(record.trial_id)
            self.waiting.append((now_ms + self.random.randrange(300), self.answer(record)))
        elif isinstance(record, GroupAdmission) and record.decision == "admitted":
            self.admitted.setdefault(record.group_id, record)
        return Effects()

    def answer(self, asked: RolloutRequested) -> list[Output]:
        number = int(asked.group_id[-8:])
        word = self.random.choice(("pass", "fail"))
        facts: dict[str, Any] = {"split": asked.split, "policy_version": asked.policy_version, "task_id": asked.task_id}
        done = completed(number, asked.member, split=asked.split, task_id=asked.task_id)
        said = verdict(number, asked.member, word, **facts)
        return [Output(topics.ROLLOUT_COMPLETED, done), Output(topics.VERIFICATION_VERDICT, said)]

    def tick(self, now_ms: int) -> Effects:
        effects = Effects()
        due = [outputs for at, outputs in self.waiting if at <= now_ms]
        self.waiting = [item for item in self.waiting if item[0] > now_ms]
        for outputs in due:
            effects.outputs += outputs
        if len(self.admitted) >= BATCH:
            taken = [self.admitted.pop(group) for group in list(self.admitted)[:BATCH]]
            effects.outputs += [*self.publish(), Output(topics.TRAINING_UPDATE, self.update(taken))]
        return effects

    def update(self, taken: list[GroupAdmission]) -> Record:
        return update(self.version, tuple(int(decision.group_id[-8:]) for decision in taken))


class Process:
    """A service as its own process, started the way the stack starts it."""

    def __init__(self, name: str, config: Path, folder: Path) -> None:
        self.name = name
        self.command = [sys.executable, "-m", "services.cli", "up", "--service", name, "--config", str(config)]
        self.ready = folder / f"{name}.json"
        self.command += ["--ready-file", str(self.ready)]
        self.log = (folder / f"{name}.log").open("ab")
        self.start()

    def start(self) -> None:
        self.ready.unlink(missing_ok=True)
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.child = subprocess.Popen(self.command, cwd=ROOT, stderr=self.log, stdout=self.log, env=environment)

    def wait(self, seconds: float = 90.0) -> bool:
        """Until it has come up; False when it has ended by itself."""
        deadline = time.monotonic() + seconds
        while not self.ready.exists():
            assert time.monotonic() < deadline, f"{self.name} did not come up"
            if self.child.poll() is not None:
                return False
            time.sleep(0.02)
        return True

    def kill(self) -> None:
        self.child.send_signal(signal.SIGKILL)
        self.child.wait()

    def close(self) -> None:
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()
        self.log.close()


@pytest.fixture
def settings(tmp_path: Path) -> Iterator[RunSettings]:
    with running_broker(tmp_path / "broker") as broker:
        made = load(
            run_id=RUN,
            kafka={"bootstrap": broker.bootstrap, "session_timeout_ms": 1500},
            store={"url": f"file://{tmp_path / 'store'}"},
            dispatch={"group_size": 2, "batch_groups": BATCH, "updates": UPDATES},
            evaluation={"train_tasks": 3, "heldout_bugs": 2, "heldout_families": 0, "samples": 2},
            trainer={"kind": "synthetic"},
            tasks={"allow_uncertified": True},  # tasks of this test, that nobody has tried
            taskset_digest="digest",
        )
        splits = {"train": tuple(FIXTURES), "heldout_bugs": tuple(HELD_OUT)}
        tasks = TaskSet("small", (*FIXTURES.values(), *HELD_OUT.values()), splits)
        open_store(made.store).put("tasks/digest/public.json", tasks.public_document())
        ensure_topics(made)
        yield made


def read_all(bootstrap: str) -> list[Record]:
    with Tap(bootstrap, topics.ALL) as tap:
        return [message.record for message in tap.to_end() if isinstance(message, Message)]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(300)  # under load the start of nine processes alone takes a minute
def test_a_run_survives_kill_9_of_each_and_its_account_balances(settings: RunSettings, tmp_path: Path) -> None:
    config = tmp_path / "run.toml"
    config.write_text(dump_toml(settings))
    around = Service(
        ServiceSpec("sampler", broadcast=(topics.ROLLOUT_REQUESTED, topics.GROUP_ADMISSION)),
        Neighbours, settings, ServiceProcess("sampler", settings, log=Log("around", RUN, io.StringIO())),
    )  # fmt: skip
    thread = threading.Thread(target=around.run)
    thread.start()
    processes = {name: Process(name, config, tmp_path) for name in KILLED}
    try:
        _torment(processes, Random(1))
        deadline = time.monotonic() + 90
        while processes["dispatch"].child.poll() is None:
            assert time.monotonic() < deadline, _logs(tmp_path)
            time.sleep(0.1)
        assert processes["dispatch"].child.returncode == 0, _logs(tmp_path)
        for name in KILLED[1:]:
            processes[name].child.terminate()
            assert processes[name].child.wait(20) == 0, _logs(tmp_path)
    finally:
        for process in processes.values():
            process.close()
        around.stop()
        thread.join(20)
    _check(read_all(settings.kafka.bootstrap))


def _torment(processes: dict[str, Process], random: Random) -> None:
    """Each of them dies, dispatch twice, in a drawn order and at drawn moments of the run."""
    for name in random.sample([*KILLED, "dispatch"], len(KILLED) + 1):
        if not processes[name].wait():
            continue  # the run is over
        time.sleep(random.uniform(0.2, 1.0))
        if processes[name].child.poll() is None:
            processes[name].kill()
            processes[name].start()


def _check(records: list[Record]) -> None:
    report = audit(records, over=True)
    assert report.balanced, report.lines()
    assert report.notes == []
    assert report.counts["trained"] == UPDATES * BATCH * 2
    assert report.counts["evaluated"] == 2 * (3 + 2) * 2
    decided = [record.policy_version for record in records if isinstance(record, PolicyGate)]
    assert sorted(decided) == list(range(UPDATES + 1))
    measured = [(r.policy_version, r.task_set) for r in records if isinstance(r, EvaluationResult)]
    assert sorted(measured) == [(v, name) for v in (0, UPDATES) for name in ("heldout_bugs", "train")]


def _logs(folder: Path) -> str:
    return "\n".join(f"--- {path.name}\n{path.read_text()[-2000:]}" for path in folder.glob("*.log"))
