"""The trainer's core between a log and a store, killable at every event; weights whose bytes show what went in."""

from __future__ import annotations

import hashlib
import io
import random
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from schemas.codec import decode, encode
from schemas.group import GroupAdmission
from schemas.ids import invocation_id
from schemas.rollout import Invocation
from schemas.topics import GROUP_ADMISSION, POLICY_PUBLISHED, ROLLOUT_INVOCATION, TRAINING_UPDATE
from services.agent.context import prefix_digest
from services.runtime.checkpoints import CheckpointMeta, Manifest, latest_manifest, list_manifests, publish_checkpoint
from services.runtime.core import Effects, Message, Position
from services.runtime.logs import Log
from services.runtime.settings import RunSettings
from services.runtime.store_local import LocalStore
from services.trainer.assembly import Room, oldest_version
from services.trainer.checkpoint import Files, Stats, SyntheticWeights
from services.trainer.core import TrainerCore
from services.trainer.packing import TrainGroup
from services.trainer.records import offsets_of
from tests.services.sampler.world import FakeClock

PARTITIONS = 2
RUN = "t"


def group_id(number: int) -> str:
    return f"{RUN}/{number:08d}"


def calls(
    trial: str, attempt: int = 0, turns: int = 2, split: str = "train", version: int = 0, prompt=(1, 2, 3), **changes
):
    """The records of one attempt: every turn appends two ids to what went before."""
    made, prefix = [], np.array(prompt, np.int32)
    start = int(hashlib.sha256(trial.encode()).hexdigest(), 16) % 50
    for turn in range(turns):
        appended = prefix if turn == 0 else np.array([7, 8], np.int32)
        prefix = prefix if turn == 0 else np.concatenate([prefix, made[-1].sampled_ids, appended])
        sampled = np.array([start + turn, 60, 4], np.int32)
        record = Invocation(
            run_id=RUN, group_id=trial.rpartition("/")[0], trial_id=trial, split=split, attempt=attempt, turn=turn,
            invocation_id=invocation_id(trial, attempt, turn),
            parent_id=None if turn == 0 else invocation_id(trial, attempt, turn - 1),
            appended_ids=appended, prefix_length=len(prefix), prefix_digest=prefix_digest(prefix), sampled_ids=sampled,
            logprobs=np.full(3, -0.5, np.float32), support_sizes=np.full(3, 9, np.int32), temperature=1.0, top_k=0,
            top_p=1.0, seed=0, engine="scripted", policy_version=version, tokenizer_digest="t", template_digest="t",
            compaction=None, stop="stop_token", started_ms=1, ended_ms=2,
        )  # fmt: skip
        made.append(replace(record, **changes))
    return made


def admission(number: int, *, size: int = 2, turns: int = 2, trainer_version: int = 0, lag: int = 0, **changes):
    """The decision that admits a group."""
    record = GroupAdmission(
        run_id=RUN, group_id=group_id(number), stage="admission", decision="admitted", reason=None, task_id="a",
        family="f", contrast="mixed", trainer_version=trainer_version, max_lag=2,
        member_trials=tuple(f"{group_id(number)}/{m}" for m in range(size)), member_attempts=(0,) * size,
        member_rewards=tuple(float(m % 2) for m in range(size)),
        member_coefficients=tuple(1.0 if m % 2 else -1.0 for m in range(size)), member_lags=(lag,) * size,
        member_invocations=(turns,) * size, member_tokens=(3 * turns,) * size, pass_rate=0.5,
        oldest_version=trainer_version - lag, age_generation_ms=1, age_tool_wait_ms=1, age_verification_ms=1,
        age_buffer_ms=1, age_queue_ms=1, decided_ms=1000 + number,
    )  # fmt: skip
    return replace(record, **changes)


class Killed(BaseException):
    """Kill -9: nothing after this point happened."""


class HashWeights:
    """Weights are a hash over everything that ever went in; the smallest change of batch or order shows."""

    def __init__(self, store) -> None:
        self.store = store
        self.state = b""
        self.fails: list[Exception] = []
        self.room = Room(vocabulary=1000, context=1000)

    def restore(self, manifest: Manifest) -> None:
        self.state = self.store.get_content(manifest.files["model.bin"].key)

    def update(self, groups: Sequence[TrainGroup], version: int) -> Stats:
        self.state = hashlib.sha256(self.state + b"half").digest()  # an update that is cut leaves damage behind
        if self.fails:
            raise self.fails.pop()
        for group in groups:
            for member in group.members:
                for call in member.calls:
                    parts = [call.prefix.tobytes(), call.sampled.tobytes(), call.logprobs.tobytes()]
                    text = f"{member.trial_id}{member.coefficient}{member.reward}{version}".encode()
                    self.state = hashlib.sha256(self.state + text + b"".join(parts)).digest()
        return SyntheticWeights(0.0, _never()).update(groups, version)

    def files(self) -> Files:
        return {"model.bin": self.state, "tokenizer.json": b"the same"}


def _never():
    import threading

    return threading.Event()


class Instance:
    """One trainer process: its core, its outbox, its jobs."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.outbox: deque = deque()
        self.jobs: deque = deque()
        manifest = latest_manifest(world.store, RUN)
        assert manifest is not None
        self.weights = world.make_weights(world.store)
        self.weights.restore(manifest)
        world.tick_event()
        log = Log("trainer", RUN, io.StringIO())
        self.core = TrainerCore(world.settings, world.counting, self.weights, manifest, world.clock, log)
        self.core.assigned(frozenset(range(PARTITIONS)))
        offsets = offsets_of(manifest)
        self.cursors = {
            (t.name, p): offsets.get((t.name, p), 0)
            for t in (ROLLOUT_INVOCATION, GROUP_ADMISSION)
            for p in range(PARTITIONS)
        }
        self.read_from = dict(self.cursors)
        self.side = {t.name: 0 for t in (POLICY_PUBLISHED, TRAINING_UPDATE)}
        self.live = False

    def apply(self, effects: Effects) -> None:
        self.outbox.extend(effects.outputs)
        self.jobs.extend(effects.jobs)

    def _deliver_side(self) -> bool:
        moved = False
        for topic in (POLICY_PUBLISHED, TRAINING_UPDATE):
            log = self.world.logs[topic.name, 0]
            while self.side[topic.name] < len(log):
                position = Position(topic.name, 0, self.side[topic.name])
                record = log[self.side[topic.name]]
                self.side[topic.name] += 1
                self.apply(self.core.handle(Message(position, 0, RUN, {}, record, 1), self.world.clock.now_ms()))
                moved = True
        return moved

    def _deliver_one(self) -> bool:
        keys = [key for key, at in self.cursors.items() if at < len(self.world.logs[key])]
        if not keys:
            return False
        key = self.world.rng.choice(keys)
        position = Position(*key, self.cursors[key])
        record = self.world.logs[key][self.cursors[key]]
        self.cursors[key] += 1
        message = Message(position, 0, record.group_id, {}, record, 1)
        self.apply(self.core.handle(message, self.world.clock.now_ms()))
        return True

    def step(self) -> bool:
        """One event, at random among those possible; False when there is none."""
        self.world.tick_event()
        if not self.live:
            self._deliver_side()
            if not self._deliver_one():
                self.live = True
                self.apply(self.core.caught_up(self.world.clock.now_ms()))
            return True
        choices = [self._flush, self._work, self._deliver_one, self._deliver_side]
        self.world.rng.shuffle(choices)
        return any(choice() for choice in choices)

    def _flush(self) -> bool:
        if not self.outbox:
            return False
        output = self.outbox.popleft()
        self.world.append(output.topic, output.record)
        return True

    def _work(self) -> bool:
        if not self.jobs:
            return False
        job = self.jobs.popleft()
        try:
            result = job.run()
        except Exception as e:
            result = e
        self.world.tick_event()
        self.apply(job.then(result))
        return True

    def tick(self) -> None:
        self.apply(self.core.tick(self.world.clock.now_ms()))


class CountingStore:
    """The real store; every call is an event at which the process may be killed, before or after it took effect."""

    def __init__(self, world: World) -> None:
        self._world = world

    def __getattr__(self, name: str):
        real = getattr(self._world.store, name)

        def call(*args, **kwargs):
            if self._world.store_down is not None:
                raise self._world.store_down
            self._world.tick_event()
            result = real(*args, **kwargs)
            self._world.tick_event()
            return result

        return call


class World:
    """The log of a run, its store, and the trainer that works on them."""

    make_weights = HashWeights
    weights_file = "model.bin"
    base: Files = {"model.bin": b"base", "tokenizer.json": b"the same"}

    def __init__(self, path, *, updates: int = 3, batch: int = 2, max_lag: int = 9, seed: int = 0, keep: int = 3):
        self.rng = random.Random(seed)
        self.clock = FakeClock()
        self.store = LocalStore(path, fsync=False)
        self.counting = CountingStore(self)
        self.store_down: Exception | None = None
        self.settings = RunSettings(
            run_id=RUN,
            dispatch={"updates": updates, "batch_groups": batch},
            admission={"max_lag": max_lag},
            trainer={"keep_checkpoints": keep},
        )
        self.logs: dict[tuple[str, int], list] = defaultdict(list)
        self.events = 0
        self.kill_at: int | None = None
        publish_checkpoint(self.store, self.base, CheckpointMeta(RUN, 0))
        self.trainer: Instance

    def tick_event(self) -> None:
        self.events += 1
        if self.events == self.kill_at:
            self.kill_at = None
            raise Killed

    def append(self, topic, record) -> None:
        single = topic in (POLICY_PUBLISHED, TRAINING_UPDATE)
        partition = 0 if single else int(record.group_id[-8:]) % PARTITIONS
        self.logs[topic.name, partition].append(decode(topic.record, encode(record)))

    def group(self, number: int, **how) -> None:
        """A whole admitted group: its calls, then its admission."""
        admitted = admission(number, **how)
        for trial in admitted.member_trials:
            for record in calls(trial, version=oldest_version(admitted)):
                self.append(ROLLOUT_INVOCATION, record)
        self.append(GROUP_ADMISSION, admitted)

    def start(self) -> Instance:
        self.trainer = Instance(self)
        return self.trainer

    def run(self, kills: int = 1) -> None:
        """Until nothing is left to do, started again after each kill."""
        for _ in range(kills + 1):
            try:
                self.start()
                while self.trainer.step():
                    pass
                return
            except Killed:
                continue
        raise AssertionError("killed more often than planned")

    # -- what came of it -------------------------------------------------------------------------------------------

    def of(self, topic) -> list:
        return [r for p in range(PARTITIONS) for r in self.logs[topic.name, p]]

    def versions(self) -> list[tuple[int, tuple[str, ...], str]]:
        """(version, groups, SHA-256 of the weights) of every manifest."""
        from services.runtime.checkpoints import load_manifest

        found = [load_manifest(self.store, key) for key in list_manifests(self.store, RUN).values()]
        return [(m.version, m.meta.group_ids, m.files[self.weights_file].sha256) for m in found]

    def announced(self) -> dict[int, set[str]]:
        """Version -> digests under which it was published."""
        found: dict[int, set[str]] = defaultdict(set)
        for record in self.of(POLICY_PUBLISHED):
            found[record.policy_version].add(record.manifest_digest)
        return dict(found)

    def of_updates(self) -> list:
        """All `training.update` records."""
        return self.of(TRAINING_UPDATE)

    def trained(self) -> dict[str, tuple[str, ...]]:
        """Update id -> groups, over all `training.update` records; repeats must agree."""
        found: dict[str, tuple[str, ...]] = {}
        for record in self.of(TRAINING_UPDATE):
            assert found.setdefault(record.update_id, record.group_ids) == record.group_ids
        return found
