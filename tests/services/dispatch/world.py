"""Everything around dispatch in a few lines: topics with partitions, and the services that answer its requests."""

from __future__ import annotations

import zlib
from collections import defaultdict
from random import Random

from schemas.group import GroupAdmission
from schemas.policy import PolicyGate
from schemas.record import Record
from schemas.rollout import RolloutRequested
from schemas.topics import (
    EVALUATION_RESULT,
    GROUP_ADMISSION,
    POLICY_GATE,
    ROLLOUT_REQUESTED,
    TRAINING_UPDATE,
    VERIFICATION_ALARM,
)
from services.admission.decide import Standing, decide
from services.closure.cohort import Cohort, Rule, close
from services.dispatch.cohorts import EvaluationPlan, draw_tasks
from services.dispatch.core import DispatchCore
from services.dispatch.credit import Credit
from services.dispatch.requests import Planner
from services.dispatch.selection import Task
from services.runtime.core import Effects, Position
from services.runtime.settings import Sampling
from services.tasks.fixture import Budgets, Fixture
from tests.services.closure.records import RUN, TOPIC_OF, completed, gate, message, result, update, verdict

FAMILIES = ("sorting", "parsing", "graphs")
PARTITIONS = 3
READS = (ROLLOUT_REQUESTED, GROUP_ADMISSION, POLICY_GATE, TRAINING_UPDATE, EVALUATION_RESULT, VERIFICATION_ALARM)


def fixture(task_id: str, family: str) -> Fixture:
    return Fixture(
        task_id=task_id, family=family, problem="p", bug_kind="b", entry="f", base_tree={"a.py": "x = 1\n"},
        allowed_globs=("*.py",), tools=("edit",), budgets=Budgets(3, 100, 30.0), public_checks=(), first_failure="FAIL",
        comparator="exact", deterministic=True, check_digest="sha256:c",
    )  # fmt: skip


FIXTURES = {f"{family}-{n}": fixture(f"{family}-{n}", family) for family in FAMILIES for n in range(4)}
HELD_OUT = {f"held-{n}": fixture(f"held-{n}", "held") for n in range(3)}
TASKS = [Task(f.task_id, f.family) for f in FIXTURES.values()]


def make_core(
    *,
    seed: int = 0,
    updates: int = 4,
    batch: int = 3,
    max_lag: int = 1,
    size: int = 2,
    every: int = 0,
    wall_s: float = 0.0,
    evaluated: tuple[int, int] = (3, 2),
    alarms: list[tuple[str, tuple[str, ...]]] | None = None,
) -> DispatchCore:
    sets = {
        "train": draw_tasks(seed, "train", FIXTURES, evaluated[0]),
        "heldout_bugs": draw_tasks(seed, "heldout_bugs", HELD_OUT, evaluated[1]),
    }
    said = alarms if alarms is not None else []
    return DispatchCore(
        Planner(RUN, seed, "sha256:t", {**FIXTURES, **HELD_OUT}, Sampling()),
        TASKS,
        EvaluationPlan(sets, samples=2),
        Credit(max_lag, batch, updates),
        group_size=size,
        selection="pass_rate",
        evaluate_every=every,
        wall_s=wall_s,
        alarm=lambda what, names: said.append((what, tuple(names))),
    )


class World:
    """The log, and one thing at a time happening in it: `hold` and `lose` are chances of a hold and of no contrast."""

    def __init__(
        self, random: Random, *, batch: int = 3, max_lag: int = 1, hold: float = 0.0, lose: float = 0.4
    ) -> None:
        self.random = random
        self.batch = batch
        self.max_lag = max_lag
        self.hold = hold
        self.lose = lose
        self.log: dict[tuple[str, int], list[Record]] = defaultdict(list)
        self.facts: list[Record] = []
        self.trainer_version = 0
        self.promoted = -1
        self.decided: set[str] = set()
        self.admitted: list[GroupAdmission] = []
        self.excluded = 0
        self.measured: set[tuple[int, str]] = set()
        self.now_ms = 10_000
        self.publish(0)

    # --- the log -----------------------------------------------------------------------------------------------------

    def partition(self, record: Record) -> int:
        topic = TOPIC_OF[type(record)]
        grouped = topic.partition_class == "grouped"
        return zlib.crc32(getattr(record, topic.key).encode()) % PARTITIONS if grouped else 0

    def append(self, record: Record) -> None:
        self.log[TOPIC_OF[type(record)].name, self.partition(record)].append(record)
        self.facts.append(record)

    def requests(self) -> list[RolloutRequested]:
        return [record for record in self.facts if isinstance(record, RolloutRequested)]

    def groups(self, split: str) -> dict[str, list[RolloutRequested]]:
        out: dict[str, list[RolloutRequested]] = defaultdict(list)
        for record in self.requests():
            if record.split == split:
                out[record.group_id].append(record)
        return out

    # --- the other services ------------------------------------------------------------------------------------------

    def publish(self, version: int) -> None:
        held = version > 0 and self.random.random() < self.hold
        self.append(gate(version, "held" if held else "promoted"))
        if not held:
            self.promoted = version

    def settle_group(self) -> None:
        """A random whole training group is judged, closed and decided."""
        waiting = [m for g, m in self.groups("train").items() if g not in self.decided and len(m) == m[0].group_size]
        if waiting:
            self._close(self.random.choice(waiting))

    def _close(self, members: list[RolloutRequested]) -> None:
        first = members[0]
        cohort = Cohort(first.group_id, int(first.group_id[-8:]), 0)
        lost = self.random.random() < self.lose
        for member in members:
            word = "fail" if lost else ("pass", "fail")[member.member % 2]
            version = first.policy_version
            said = verdict(
                cohort.number, member.member, word, policy_version=version, newest_version=version, split=first.split,
                task_id=first.task_id, fixture_digest=first.fixture_digest,
            )  # fmt: skip
            ended = {"split": first.split, "task_id": first.task_id, "fixture_digest": first.fixture_digest}
            self.append(completed(cohort.number, member.member, **ended))
            self.append(said)
            cohort.plan(member, Position("r", 0, 0))
            cohort.judge(said, Position("v", 0, 0))
        closure = close(cohort, Rule(), self.now_ms)
        self.append(closure)
        self.decided.add(first.group_id)
        if first.split == "train":
            decision = decide(closure, Standing(self.trainer_version, self.max_lag), self.now_ms)
            self.append(decision)
            self.excluded += decision.decision == "excluded"
            if decision.decision == "admitted":
                self.admitted.append(decision)

    def train(self) -> None:
        """One update, when a batch is there; what became stale in the queue is excluded first."""
        for decision in list(self.admitted):
            if self.trainer_version - decision.oldest_version > self.max_lag:
                self.admitted.remove(decision)
                changed = {"stage": "trainer", "decision": "excluded", "reason": "stale"}
                self.append(type(decision)(**{**_fields(decision), **changed}))
                self.excluded += 1
        if len(self.admitted) < self.batch:
            return
        batch, self.admitted = self.admitted[: self.batch], self.admitted[self.batch :]
        self.trainer_version += 1
        self.append(update(self.trainer_version, tuple(int(d.group_id[-8:]) for d in batch)))
        self.publish(self.trainer_version)

    def measure(self) -> None:
        """Evaluation groups are judged; a set whose cohort is whole gets its result."""
        by_cell: dict[tuple[int, str], list[list[RolloutRequested]]] = defaultdict(list)
        for members in self.groups("eval").values():
            if len(members) == members[0].group_size:
                by_cell[members[0].policy_version, members[0].task_set].append(members)
                if members[0].group_id not in self.decided:
                    self._close(members)
        for (version, name), found in by_cell.items():
            wanted = {"train": 3, "heldout_bugs": 2}[name]
            if len(found) >= wanted and (version, name) not in self.measured:
                self.measured.add((version, name))
                self.append(result(version, name))

    def step(self) -> None:
        self.now_ms += 100
        self.random.choice((self.settle_group, self.settle_group, self.settle_group, self.train, self.measure))()


def _fields(record: GroupAdmission) -> dict[str, object]:
    return {spec.name: getattr(record, spec.name) for spec in record.TYPE.fields}


class Dispatch:
    """A dispatch process in that world: reads every topic in its own time; `death` is how likely sending kills it."""

    def __init__(self, world: World, death: float = 0.0, **settings: object) -> None:
        self.world = world
        self.death = death
        self.settings = settings
        self.start()

    def start(self) -> None:
        self.core = make_core(batch=self.world.batch, max_lag=self.world.max_lag, **self.settings)  # type: ignore[arg-type]
        self.read: dict[tuple[str, int], int] = defaultdict(int)
        self.read_all()
        self.emit(self.core.caught_up(self.world.now_ms))

    def pending(self) -> list[tuple[str, int]]:
        names = {topic.name for topic in READS}
        return [key for key, found in self.world.log.items() if key[0] in names and self.read[key] < len(found)]

    def read_one(self) -> bool:
        keys = self.pending()
        if not keys:
            return False
        key = self.world.random.choice(sorted(keys))
        offset = self.read[key]
        self.read[key] = offset + 1
        given = message(self.world.log[key][offset], offset, key[1], self.world.now_ms)
        self.emit(self.core.handle(given, self.world.now_ms))
        return True

    def read_all(self) -> None:
        while self.read_one():
            pass

    def emit(self, effects: Effects) -> None:
        assert effects.done == []
        if effects.outputs and self.world.random.random() < self.death:
            self.die_while_emitting(effects)
            return
        for output in effects.outputs:
            assert isinstance(output.record, RolloutRequested)
            self.world.append(output.record)

    def die_while_emitting(self, effects: Effects) -> None:
        """Kill -9 in the middle of sending: every partition has some first part of what was sent to it."""
        by_partition: dict[int, list[Record]] = defaultdict(list)
        for output in effects.outputs:
            by_partition[self.world.partition(output.record)].append(output.record)
        for records in by_partition.values():
            for record in records[: self.world.random.randrange(len(records) + 1)]:
                self.world.append(record)
        self.start()


__all__ = ["RUN", "Dispatch", "PolicyGate", "World", "make_core"]
