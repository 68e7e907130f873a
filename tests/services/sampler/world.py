"""A log, a sandbox and an engine in miniature around the real core: records cross in any order, crashes anywhere."""

from __future__ import annotations

import hashlib
import io
import random
from collections import defaultdict, deque
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from schemas.codec import decode, encode
from schemas.policy import PolicyGate
from schemas.rollout import Invocation, RolloutCompleted, RolloutRequested
from schemas.sandbox import SandboxCommand, SandboxResult
from schemas.topics import (
    POLICY_GATE,
    ROLLOUT_COMPLETED,
    ROLLOUT_INVOCATION,
    ROLLOUT_REQUESTED,
    SANDBOX_COMMAND,
    SANDBOX_RESULT,
)
from services.agent.engine import EngineRequest, EngineSample
from services.agent.harness import Harness, Limits
from services.runtime.core import Effects, Message, Position
from services.runtime.logs import Log
from services.runtime.settings import RunSettings
from services.runtime.store import content_key, digest_of
from services.runtime.watermark import Watermarks
from services.sampler.core import Ports, SamplerCore
from services.tasks.fixture import Budgets, Example, Fixture
from services.tasks.taskset import TaskSet

PARTITION = 0
INPUTS = (ROLLOUT_REQUESTED, SANDBOX_RESULT, ROLLOUT_INVOCATION, ROLLOUT_COMPLETED)
ACTIONS = ("edit 1: def f(a):", "edit 2: return a + 1", "test", "read", "submit", "nonsense", "edit 99: x")


@lru_cache
def task_set() -> TaskSet:
    fixture = Fixture(
        task_id="plus/1",
        family="numbers",
        problem="plus",
        bug_kind="operator",
        entry="f",
        base_tree={"f.py": "def f(a):\n    return a - 1\n"},
        allowed_globs=("*.py",),
        tools=("edit", "replace", "test", "read", "submit"),
        budgets=Budgets(4, 128, 30.0),
        public_checks=(Example((1,), 2),),
        first_failure="FAIL 1 want 2 got 0",
        comparator="exact",
        deterministic=True,
        check_digest="sha256:0",
    )
    return TaskSet("tiny", (fixture,), {"train": ("plus/1",)})


@lru_cache
def harness() -> Harness:
    return Harness.train(task_set().fixtures, 300, Limits(action_tokens=24, context_tokens=160))


def requested(member: int, *, version: int = 0, group: int = 0, **changes: object) -> RolloutRequested:
    fixture = task_set().get("plus/1")
    record = RolloutRequested(
        run_id="t",
        group_id=f"t/{group:08d}",
        trial_id=f"t/{group:08d}/{member}",
        member=member,
        group_size=4,
        task_id="plus/1",
        family="numbers",
        fixture_digest=fixture.digest,
        taskset_digest=hashlib.sha256(task_set().public_document()).hexdigest(),
        split="train",
        task_set="train",
        policy_version=version,
        temperature=1.0,
        top_k=0,
        top_p=1.0,
        max_turns=4,
        max_tokens=80,
        wall_s=30.0,
        seed=member,
        selection="uniform",
        selection_weight=1.0,
        selection_inputs="{}",
        requested_ms=1,
    )
    return replace(record, **changes)


def decision(version: int, verdict: str = "promoted") -> PolicyGate:
    return PolicyGate("t", version, f"manifest-{version}", "sha256:0", verdict, "{}", 1)


def command_result(command: SandboxCommand, status: str = "ok", generation: str = "g") -> SandboxResult:
    submits = command.tool == "submit" and status == "ok"
    return SandboxResult(
        run_id=command.run_id,
        group_id=command.group_id,
        trial_id=command.trial_id,
        attempt=command.attempt,
        operation_id=command.operation_id,
        sequence=command.sequence,
        tool=command.tool,
        status=status,
        observation="" if submits else f"saw {command.tool}",
        truncated=False,
        checks_passed=None,
        diff=f"diff of {command.operation_id}" if submits else None,
        cpu_s=0.01,
        memory_bytes=None,
        workspace_generation=generation,
        infra_error=None if status in ("ok", "refused") else status,
        started_ms=command.issued_ms,
        ended_ms=command.issued_ms + 5,
        findings=(f"{command.tool}_finding",) if command.tool in ("test", "edit") else None,
    )


@dataclass
class FakeClock:
    """Moves only when told to."""

    seconds: float = 1000.0

    def now_ms(self) -> int:
        return int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds


class Topics:
    """One partition of every topic; values go through the real codec."""

    def __init__(self) -> None:
        self.logs: dict[str, list[object]] = defaultdict(list)

    def append(self, topic, record) -> int:
        self.logs[topic.name].append(decode(topic.record, encode(record)))
        return len(self.logs[topic.name]) - 1

    def of(self, topic) -> list:
        return self.logs[topic.name]


class Instance:
    """One sampler process: the real core and watermark, an outbox per topic, a queue of engine calls."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.rng = random.Random(f"{world.seed}/{number}")
        self.engine_version = -1
        self.calls: deque[EngineRequest] = deque()
        self.outbox: dict[str, deque] = defaultdict(deque)
        self.jobs: deque = deque()
        self.watermarks = Watermarks()
        self.watermarks.open((t.name, PARTITION) for t in INPUTS)
        self.cursors = {t.name: world.committed.get(t.name, 0) for t in INPUTS}
        self.gate_cursor = 0
        self.known_at_start: frozenset[str] = frozenset()
        self.ended_at_start: frozenset[str] = frozenset()
        self.emitted: list[object] = []
        ports = Ports("scripted", self.calls.append, self._load, lambda digest: task_set().public_document(), key_of)
        self.core = SamplerCore(world.settings, ports, world.clock, Log("sampler", "t", io.StringIO()))
        self.core.assigned(frozenset({PARTITION}))
        self.ends = {t.name: len(world.topics.of(t)) for t in INPUTS}
        self.live = False

    def _load(self, gate: PolicyGate) -> Harness:
        self.engine_version = gate.policy_version
        return harness()

    def apply(self, effects: Effects) -> None:
        for output in effects.outputs:
            self.emitted.append(output.record)
            self.outbox[output.topic.name].append((output, None))
        # Done only once everything sent so far is flushed: at least as late as the real outbox reports it.
        if effects.done:
            if any(self.outbox.values()):
                self.outbox["done"].append((None, effects.done))
            else:
                self.watermarks.finish_now(effects.done)
        self.jobs.extend(effects.jobs)

    def flush(self, topic_name: str | None = None) -> None:
        """Acknowledge one output of one topic."""
        names = [n for n, q in self.outbox.items() if q and n != "done"]
        name = topic_name or (self.rng.choice(names) if names else None)
        if name is not None:
            output, _ = self.outbox[name].popleft()
            self.world.topics.append(output.topic, output.record)
            self.world.wrote(self, output.record)
        if not any(q for n, q in self.outbox.items() if n != "done"):
            while self.outbox["done"]:
                self.watermarks.finish_now(self.outbox["done"].popleft()[1])

    def deliver(self, topic) -> bool:
        log, cursor = self.world.topics.of(topic), self.cursors[topic.name]
        if cursor >= len(log):
            return False
        self.cursors[topic.name] = cursor + 1
        position = Position(topic.name, PARTITION, cursor)
        self.watermarks.deliver(position)
        record = log[cursor]
        message = Message(position, 0, record.group_id, {}, record, 100)
        self.apply(self.core.handle(message, self.world.clock.now_ms()))
        if not self.live and all(self.cursors[name] >= end for name, end in self.ends.items()):
            self.go_live()
        return True

    def go_live(self) -> None:
        if not self.live:
            self.live = True
            calls = self.world.topics.of(ROLLOUT_INVOCATION)[: self.ends[ROLLOUT_INVOCATION.name]]
            self.known_at_start = frozenset(r.invocation_id for r in calls)
            first: dict[tuple[str, int], RolloutCompleted] = {}
            for end in self.world.topics.of(ROLLOUT_COMPLETED)[: self.ends[ROLLOUT_COMPLETED.name]]:
                first.setdefault((end.trial_id, end.attempt), end)
            self.ended_at_start = frozenset(end.trial_id for end in first.values() if end.final_attempt)
            self.gates()
            self.apply(self.core.caught_up(self.world.clock.now_ms()))

    def gates(self) -> None:
        log = self.world.topics.of(POLICY_GATE)
        while self.gate_cursor < len(log):
            record = log[self.gate_cursor]
            message = Message(Position(POLICY_GATE.name, 0, self.gate_cursor), 0, "t", {}, record, 10)
            self.gate_cursor += 1
            self.apply(self.core.handle(message, self.world.clock.now_ms()))

    def work(self) -> bool:
        if not self.jobs:
            return False
        job = self.jobs.popleft()
        try:
            result = job.run()
        except Exception as e:
            result = e
        self.apply(job.then(result))
        return True

    def serve(self, text: str | None = None, *, cut: bool = False, error: str | None = None) -> bool:
        """The engine answers its oldest call with an action (random unless given)."""
        if not self.calls:
            return False
        call = self.calls.popleft()
        now = self.world.clock.now_ms()
        if error is not None:
            self.apply(self.core.on_engine_error(call.request_id, error, now))
            return True
        ids = harness().action_ids(text if text is not None else self.rng.choice(ACTIONS))[: call.max_tokens]
        ids = ids[:-1] if cut and len(ids) > 1 else ids
        stop = "stop_token" if ids[-1] in call.stop_ids else "length"
        n = len(ids)
        sample = EngineSample(
            call.request_id, ids, np.full(n, -0.5, np.float32), np.full(n, 9, np.int32), stop, self.engine_version,
            now - 20, now,
        )  # fmt: skip
        self.apply(self.core.on_sample(sample, now))
        return True

    def tick(self) -> None:
        self.gates()
        self.apply(self.core.tick(self.world.clock.now_ms()))

    def commit(self) -> None:
        for (name, _), offset in self.watermarks.committable().items():
            self.world.committed[name] = max(offset, self.world.committed.get(name, 0))


def key_of(text: str) -> str:
    """Where the store of these tests keeps a large candidate."""
    return content_key(digest_of(text.encode()))


class World:
    """The topics, the one sandbox and the instances that come and go."""

    def __init__(self, seed: int = 0, **sampler: object) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.clock = FakeClock()
        self.topics = Topics()
        self.committed: dict[str, int] = {}
        self.settings = RunSettings(run_id="t", sampler=sampler)
        self.commands = 0
        self.workspaces: dict[tuple[str, int], dict[str, SandboxResult]] = {}
        self.history: list[tuple[int, object]] = []
        self.zombies: list[Instance] = []
        self.instances = 0
        self.sampler = self.start()

    def start(self) -> Instance:
        self.instances += 1
        return Instance(self, self.instances)

    def wrote(self, instance: Instance, record: object) -> None:
        self.history.append((instance.number, record))

    def crash(self) -> None:
        """Kill -9: what was not flushed may still arrive later (a zombie's producer) or never."""
        self.zombies.append(self.sampler)
        self.sampler = self.start()

    def sandbox(self, status: str | None = None) -> bool:
        """Answer the oldest command; repeats get the recorded answer, an unknown workspace in the middle is lost unless
        its history comes along."""
        log = self.topics.of(SANDBOX_COMMAND)
        if self.commands >= len(log):
            return False
        command = log[self.commands]
        self.commands += 1
        key = (command.trial_id, command.attempt)
        if command.sequence == 0 or command.history is not None:
            self.workspaces.setdefault(key, {})
        space = self.workspaces.get(key)
        if space is None:
            result = command_result(command, "workspace_lost")
        elif command.operation_id in space:
            result = space[command.operation_id]
        else:
            result = space[command.operation_id] = command_result(command, status or "ok")
        self.topics.append(SANDBOX_RESULT, result)
        return True

    def settle(self, rounds: int = 6000) -> None:
        """Let everything that can happen without faults happen, until nothing is left to do."""
        quiet = 0
        for _ in range(rounds):
            s = self.sampler
            moved = sum(s.deliver(t) for t in INPUTS) > 0
            if not s.live:
                if not moved:
                    s.go_live()
                continue
            s.gates()
            moved = s.work() or moved
            moved = s.serve() or moved
            while any(q for n, q in s.outbox.items() if n != "done"):
                s.flush()
                moved = True
            moved = self.sandbox() or moved
            if not moved:
                self.clock.seconds += 40.0
                s.tick()
                quiet = 0 if s.jobs or any(s.outbox.values()) else quiet + 1
                s.commit()
                if quiet > 12:
                    return
            else:
                quiet = 0
        raise AssertionError("the world does not settle")

    # -- reading the log as a consumer would ---------------------------------------------------------------------------

    def ends_of(self, trial_id: str) -> list[RolloutCompleted]:
        """First record of each attempt, in order."""
        found: dict[int, RolloutCompleted] = {}
        for record in self.topics.of(ROLLOUT_COMPLETED):
            if record.trial_id == trial_id:
                found.setdefault(record.attempt, record)
        return [found[n] for n in sorted(found)]

    def calls_of(self, trial_id: str, attempt: int) -> list[Invocation]:
        """First record of each invocation, by turn."""
        found: dict[int, Invocation] = {}
        for record in self.topics.of(ROLLOUT_INVOCATION):
            if record.trial_id == trial_id and record.attempt == attempt:
                found.setdefault(record.turn, record)
        return [found[n] for n in sorted(found)]

    def uncommitted(self) -> int:
        """Input records that a new instance would read again."""
        return sum(len(self.topics.of(t)) - self.committed.get(t.name, 0) for t in INPUTS)

    def commands_of(self, trial_id: str) -> list[SandboxCommand]:
        return [c for c in self.topics.of(SANDBOX_COMMAND) if c.trial_id == trial_id]
