"""The sampler as a process on a real broker: a run of trials to their ends, and kill -9 in the middle of it."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from infra.broker.testing import running_broker
from schemas import codec, topics
from schemas.sandbox import SandboxCommand
from services.runtime.checkpoints import CheckpointMeta, publish_checkpoint
from services.runtime.core import BaseCore, Effects, Output, finished
from services.runtime.settings import dump_toml
from services.runtime.store_local import LocalStore
from tests.services.runtime.bus import RUN, Bus, wait_for
from tests.services.sampler.world import command_result, decision, harness, requested, task_set

MEMBERS = 24
PROGRAM = (
    "import sys; from pathlib import Path; from services.runtime.settings import load; "
    "from services.runtime.process import ServiceProcess; from services.sampler.main import main; "
    "settings = load(Path(sys.argv[1])); "
    "sys.exit(main(settings, ServiceProcess('sampler', settings, ready_file=Path(sys.argv[2]))))"
)


class Workspaces(BaseCore):
    """A sandbox in miniature: remembers its answers, and a workspace that it does not know is lost."""

    def __init__(self, context) -> None:
        self._spaces: dict[tuple[str, int], dict[str, object]] = {}

    def handle(self, message, now_ms: int) -> Effects:
        command = message.record
        assert isinstance(command, SandboxCommand)
        key = (command.trial_id, command.attempt)
        if command.sequence == 0:
            self._spaces.setdefault(key, {})
        space = self._spaces.get(key)
        if space is None:
            return finished(message, [Output(topics.SANDBOX_RESULT, command_result(command, "workspace_lost"))])
        result = space.setdefault(command.operation_id, command_result(command))
        return finished(message, [Output(topics.SANDBOX_RESULT, result)])


class Stage:
    """Broker, store, sandbox; the sampler is a process that may be killed."""

    def __init__(self, folder: Path, bus: Bus, config: Path) -> None:
        self.folder, self.bus, self.config = folder, bus, config
        self.process: subprocess.Popen[bytes] | None = None
        self.started = 0

    def start(self) -> None:
        self.started += 1
        ready = self.folder / f"ready-{self.started}"
        with (self.folder / f"sampler-{self.started}.log").open("wb") as log:
            command = [sys.executable, "-c", PROGRAM, str(self.config), str(ready)]
            self.process = subprocess.Popen(command, stderr=log, cwd=Path(__file__).parents[3])
        wait_for(ready.exists, what="the sampler's ready file")

    def end(self, number: int) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            os.kill(self.process.pid, number)
        return self.process.wait(timeout=30)

    def records(self, topic) -> list:
        return [codec.decode(topic.record, r.value, r.headers) for r in self.bus.raw(topic.name)]

    def send(self, topic, *records) -> None:
        for record in records:
            key = getattr(record, topic.key).encode()
            producer = self.bus._producer
            producer.send(topic.name, key=key, value=codec.encode(record), headers=codec.headers(record))
        self.bus._producer.flush(30)

    def finals(self) -> int:
        return sum(r.final_attempt for r in self.records(topics.ROLLOUT_COMPLETED))


@pytest.fixture
def stage(tmp_path, request):
    store = LocalStore(tmp_path / "store", fsync=False)
    folder = tmp_path / "base"
    folder.mkdir()
    engine = getattr(request, "param", "synthetic")
    if engine == "torch":
        from services.agent import model

        shape = model.ModelShape(32, 2, 2, 1, 64, harness().tokenizer.size, 160)
        model.save(folder, model.build(shape, seed=1), harness())
    else:
        harness().save(folder)
    key, digest = publish_checkpoint(store, folder, CheckpointMeta(RUN, 0))
    public = task_set().public_document()
    taskset = hashlib.sha256(public).hexdigest()
    store.put(f"tasks/{taskset}/public.json", public)
    with running_broker(tmp_path / "broker") as broker:
        bus = Bus(
            broker.bootstrap,
            store={"url": f"file://{tmp_path / 'store'}"},
            sampler={"engine": engine, "synthetic_min_s": 0.2, "synthetic_max_s": 2.0, "concurrency": 16},
            tasks={"source": "tiny"},
            kafka={"session_timeout_ms": 3000},
            base_manifest=key,
            taskset_digest=taskset,
        )
        config = tmp_path / "run.toml"
        config.write_text(dump_toml(bus.settings))
        made = Stage(tmp_path, bus, config)
        made.send(topics.POLICY_GATE, replace(decision(0), run_id=RUN, manifest_uri=key, manifest_digest=digest))
        bus.start(Workspaces).ready()
        yield made
        if made.process is not None and made.process.poll() is None:
            made.end(signal.SIGKILL)
        bus.close()


def plan(members: int = MEMBERS):
    """Requests of several groups, so that every partition has some."""
    for number in range(members):
        group = f"{RUN}/{number // 4:08d}"
        yield requested(number % 4, run_id=RUN, group_id=group, trial_id=f"{group}/{number % 4}", seed=number)


def check_extension(before: list, after: list) -> None:
    """`after` begins every attempt with exactly the calls that `before` had of it, and no id stands there twice."""
    assert before
    assert all(count == 1 for count in Counter(r.invocation_id for r in after).values()), "tokens were sampled again"
    for attempt in {(r.trial_id, r.attempt) for r in before}:
        old, new = (
            sorted((r for r in records if (r.trial_id, r.attempt) == attempt), key=lambda r: r.turn)
            for records in (before, after)
        )
        assert [r.turn for r in new] == list(range(len(new)))
        for one, other in zip(old, new[: len(old)], strict=True):
            assert (one.invocation_id, one.prefix_digest) == (other.invocation_id, other.prefix_digest)
            assert one.sampled_ids.tobytes() == other.sampled_ids.tobytes()
            assert one.logprobs.tobytes() == other.logprobs.tobytes()


def test_stopped_and_killed_in_the_middle_it_goes_on_from_the_log(stage):
    """SIGTERM, then kill -9: nothing recorded is sampled again, and a call cut by either is nobody's failure."""
    stage.start()
    stage.send(topics.ROLLOUT_REQUESTED, *plan())
    before: list = []
    for wanted, number in ((1, signal.SIGTERM), (MEMBERS // 2, signal.SIGKILL)):
        wait_for(lambda wanted=wanted: len(stage.records(topics.ROLLOUT_INVOCATION)) >= wanted, what="calls")
        asked = time.monotonic()
        assert stage.end(number) == (0 if number == signal.SIGTERM else -number)
        assert time.monotonic() - asked < 8
        before.append(stage.records(topics.ROLLOUT_INVOCATION))
        assert stage.finals() < MEMBERS
        stage.start()
    wait_for(lambda: stage.finals() >= MEMBERS, 40, what="every trial's end")
    time.sleep(0.5)
    calls = stage.records(topics.ROLLOUT_INVOCATION)
    for recorded in before:
        check_extension(recorded, calls)
    ends = stage.records(topics.ROLLOUT_COMPLETED)
    assert Counter(r.trial_id for r in ends if r.final_attempt) == {r.trial_id: 1 for r in plan()}
    assert {(r.stop_reason, r.attempt) for r in ends} == {("submitted", 0)}
    assert sum(r.invocations for r in ends) == len(calls)


@pytest.mark.long
@pytest.mark.parametrize("stage", ["torch"], indirect=True)
def test_the_torch_engine_samples_from_the_fetched_checkpoint(stage):
    """An untrained model babbles: every action is malformed, costs a turn, and the budget submits the workspace."""
    stage.start()
    stage.send(topics.ROLLOUT_REQUESTED, *plan(8))
    wait_for(lambda: stage.finals() >= 8, 40, what="every trial's end")
    ends = stage.records(topics.ROLLOUT_COMPLETED)
    assert {r.stop_reason for r in ends} <= {"turn_budget", "token_budget", "context_overflow", "submitted"}
    assert sum(r.malformed_actions for r in ends) > 8
    calls = stage.records(topics.ROLLOUT_INVOCATION)
    assert {(r.engine, r.policy_version) for r in calls} == {("torch", 0)}
    assert all(len(r.sampled_ids) == len(r.logprobs) > 0 and (r.logprobs <= 0).all() for r in calls)
    assert sum(r.policy_tokens for r in ends) == sum(len(r.sampled_ids) for r in calls)
    assert stage.end(signal.SIGTERM) == 0


@pytest.mark.long
@pytest.mark.parametrize("stage", ["torch"], indirect=True)
def test_the_torch_engine_killed_in_mid_trial_goes_on_from_the_recorded_tokens(stage):
    stage.send(topics.ROLLOUT_REQUESTED, *plan(32))
    before = []
    for wanted in (6, 40):
        stage.start()
        wait_for(lambda wanted=wanted: len(stage.records(topics.ROLLOUT_INVOCATION)) >= wanted, 40, what="calls")
        assert stage.end(signal.SIGKILL) == -signal.SIGKILL
        before.append(stage.records(topics.ROLLOUT_INVOCATION))
    stage.start()
    wait_for(lambda: stage.finals() >= 32, 60, what="every trial's end")
    calls, ends = stage.records(topics.ROLLOUT_INVOCATION), stage.records(topics.ROLLOUT_COMPLETED)
    for recorded in before:
        check_extension(recorded, calls)
    longer = Counter(r.trial_id for r in calls)
    assert any(longer[trial] > count for trial, count in Counter(r.trial_id for r in before[0]).items()), (
        "the kill came between trials"
    )
    assert {r.attempt for r in ends} == {0}
    assert sum(r.policy_tokens for r in ends) == sum(len(r.sampled_ids) for r in calls)
