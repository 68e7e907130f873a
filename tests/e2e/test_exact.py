"""The trainer, killed at any instruction: the same updates, records and bytes as one that nobody disturbed.

Its input is recorded once, on a broker whose folder is copied for each case: all cases read the same bytes at the same
offsets. `make exact` tries every place of an update to die at; the test run samples them.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from schemas import codec, topics
from services.agent import model as policy
from services.runtime.checkpoints import CheckpointMeta, list_manifests, load_manifest, publish_checkpoint
from services.runtime.settings import dump_toml
from services.runtime.store_local import LocalStore
from tests.services.runtime.bus import RUN, Bus, wait_for
from tests.services.sampler.world import harness
from tests.services.trainer.core_world import admission, calls
from tests.services.trainer.doomed import Nursery, Point

pytestmark = pytest.mark.long

UPDATES, BATCH = 3, 2
SHAPE = policy.ModelShape(32, 2, 2, 1, 64, harness().tokenizer.size, 160)
TIMES = ("finished_ms", "waited_ms", "computed_ms", "published_ms", "manifest_digest")
EVERYTHING = bool(os.environ.get("ROLLSTREAM_EXACT"))
SEEDS = tuple(int(seed) for seed in os.environ.get("ROLLSTREAM_SEEDS", "1 2").split())


class Stage:
    """One case: a copy of the recorded broker and store, and a trainer that is started until all updates are made."""

    def __init__(self, folder: Path, recorded: Path, nursery: Nursery) -> None:
        self.folder, self._nursery = folder, nursery
        shutil.copytree(recorded, folder)
        self.bus: Bus | None = None
        ready = folder / "ready"
        self._broker = nursery.broker("--data", str(folder / "broker"), "--ready-file", str(ready))
        wait_for(ready.exists, what="the broker")
        self.bus = bus(ready.read_text(), folder)
        self.store = LocalStore(folder / "store", fsync=False)
        self._config = folder / "run.toml"
        self._config.write_text(dump_toml(self.bus.settings))
        self._trainer: int | None = None

    def start(self, fuse: Point | None = None, trace: Path | None = None) -> None:
        self._trainer = self._nursery.trainer(self._config, self.folder / "trainer.log", fuse, trace)

    @property
    def code(self) -> int | None:
        """Exit code of the trainer."""
        assert self._trainer is not None
        return self._nursery.poll(self._trainer)

    def end(self, number: int) -> int:
        assert self._trainer is not None
        if self.code is None:
            os.kill(self._trainer, number)
        wait_for(lambda: self.code is not None, 60, what="the trainer's end")
        return self.code

    def records(self, topic: Any) -> list[Any]:
        assert self.bus is not None
        return [codec.decode(topic.record, r.value, r.headers) for r in self.bus.raw(topic.name)]

    def made(self) -> bool:
        """Whether the last version exists and is announced."""
        if UPDATES not in list_manifests(self.store, RUN):
            return False
        told = [{r.policy_version for r in self.records(t)} for t in (topics.TRAINING_UPDATE, topics.POLICY_PUBLISHED)]
        return all(UPDATES in versions for versions in told)

    def until_killed_or_made(self) -> bool:
        """True when everything is made; False when the trainer ended before. A kill is its only legal end."""
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            if self.code is not None:
                assert self.code == -signal.SIGKILL, self.log()
                return False
            if self.made():
                return True
            time.sleep(0.02)
        raise AssertionError(self.log())

    def finish(self) -> None:
        """Undisturbed to the end, and out by SIGTERM."""
        if self.code is not None:
            self.start()
        assert self.until_killed_or_made()
        assert self.end(signal.SIGTERM) == 0, self.log()

    def log(self) -> str:
        return (self.folder / "trainer.log").read_text()[-3000:]

    def close(self) -> None:
        for pid in (self._trainer, self._broker):
            if pid is not None and self._nursery.poll(pid) is None:
                os.kill(pid, signal.SIGKILL)
                wait_for(lambda pid=pid: self._nursery.poll(pid) is not None, 30)
        if self.bus is not None:
            self.bus.close()

    def account(self) -> dict[str, Any]:
        """All that must be the same: what each version holds and where its maker reads on; what the topics say of it.

        A record may stand there twice, with the same content both times.
        """
        manifests = [load_manifest(self.store, key) for key in list_manifests(self.store, RUN).values()]
        versions = [
            (m.version, m.meta.parent, m.meta.update_id, m.meta.group_ids, m.meta.consumed, m.meta.decided,
             {name: file.sha256 for name, file in m.files.items()})
            for m in manifests
        ]  # fmt: skip
        told = {}
        for topic in (topics.TRAINING_UPDATE, topics.POLICY_PUBLISHED):
            first: dict[int, Any] = {}
            for record in self.records(topic):
                assert first.setdefault(record.policy_version, record) == record, "two contents under one id"
            told[topic.name] = [untimed(record) for record in first.values()]
        for record in self.records(topics.POLICY_PUBLISHED):
            assert record.manifest_digest == manifests[record.policy_version].digest
        excluded = [r.group_id for r in self.records(topics.GROUP_ADMISSION) if r.decision == "excluded"]
        return {"versions": versions, **told, "excluded": excluded}


def untimed(record: Any) -> Any:
    return replace(record, **{name: type(getattr(record, name))() for name in TIMES if hasattr(record, name)})


def bus(bootstrap: str, folder: Path) -> Bus:
    return Bus(
        bootstrap,
        store={"url": f"file://{folder / 'store'}"},
        trainer={"keep_checkpoints": 9, "warmup_updates": 0, "imitation_trials": 2, "learning_rate": 1e-2},
        dispatch={"updates": UPDATES, "batch_groups": BATCH},
        admission={"max_lag": 9},
        base_manifest=f"runs/{RUN}/checkpoints/00000000.json",
    )


def send_group(to: Bus, number: int) -> None:
    """One admitted group of two members with two calls each; every group has a prompt of its own."""
    group = f"{RUN}/{number:08d}"
    trials = (f"{group}/0", f"{group}/1")
    prompt = np.array([1, 2, 3 + number], np.int32)
    records = [replace(r, run_id=RUN) for trial in trials for r in calls(trial, prompt=prompt)]
    records.append(replace(admission(number), run_id=RUN, group_id=group, member_trials=trials))
    for record in records:
        topic = topics.ROLLOUT_INVOCATION if hasattr(record, "turn") else topics.GROUP_ADMISSION
        to._producer.send(topic.name, key=group.encode(), value=codec.encode(record), headers=codec.headers(record))


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    made = Nursery(tmp_path_factory.mktemp("nursery") / "nursery.log")
    yield made
    made.close()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory, nursery: Nursery) -> Path:
    """Broker and store of a run with everything admitted and nothing trained."""
    folder = tmp_path_factory.mktemp("recorded") / "run"
    base = folder.parent / "base"
    policy.save(base, policy.build(SHAPE, seed=1), harness())
    store = LocalStore(folder / "store", fsync=False)
    publish_checkpoint(store, base, CheckpointMeta(RUN, 0))
    ready = folder.parent / "ready"
    broker = nursery.broker("--data", str(folder / "broker"), "--ready-file", str(ready))
    wait_for(ready.exists, what="the broker")
    to = bus(ready.read_text(), folder)
    for number in range(UPDATES * BATCH):
        send_group(to, number)
    to._producer.flush(30)
    to.close()
    os.kill(broker, signal.SIGTERM)
    wait_for(lambda: nursery.poll(broker) is not None, 30)
    return folder


@pytest.fixture(scope="module")
def calm(
    tmp_path_factory: pytest.TempPathFactory, nursery: Nursery, recorded: Path
) -> tuple[dict[str, Any], list[Point]]:
    """The account of an undisturbed run, and every point that it passed."""
    folder = tmp_path_factory.mktemp("calm")
    stage = Stage(folder / "run", recorded, nursery)
    try:
        stage.start(trace=folder / "trace.json")
        stage.finish()
        return stage.account(), [tuple(point) for point in json.loads((folder / "trace.json").read_text())]
    finally:
        stage.close()


@pytest.fixture
def stage(tmp_path: Path, nursery: Nursery, recorded: Path) -> Iterator[Stage]:
    made = Stage(tmp_path / "run", recorded, nursery)
    yield made
    made.close()


def of_update(number: int, points: list[Point]) -> list[Point]:
    """Every point from the moment at which an update (from 1) begins to that at which the next one does."""
    begins = [index for index, point in enumerate(points) if point[0].endswith("._begin") and point[2] == "before"]
    return points[begins[number - 1] : begins[number]]


def of_the_start(points: list[Point]) -> list[Point]:
    """Restoring a checkpoint, and reading the input up to the first update; of the records read, each eighth."""
    begin = next(index for index, point in enumerate(points) if point[0].endswith("._begin"))
    return [point for point in points[:begin] if point[0] != "TrainerCore.handle" or point[1] % 8 == 0]


def test_an_undisturbed_run_is_what_it_should_be(calm):
    account, points = calm
    assert [v[0] for v in account["versions"]] == list(range(UPDATES + 1))
    assert [g[-1] for v in account["versions"] for g in v[3]] == [str(n) for n in range(UPDATES * BATCH)]
    assert len({v[6]["model.safetensors"] for v in account["versions"]}) == UPDATES + 1
    assert [u.policy_version for u in account[topics.TRAINING_UPDATE.name]] == [1, 2, 3]
    assert [p.policy_version for p in account[topics.POLICY_PUBLISHED.name]] == [0, 1, 2, 3]
    assert account["excluded"] == []
    named = {name for name, _, _ in of_update(2, points)}
    for name in ("LocalStore.put", "os.link", "AdamW.step", "Updater._imitate", "KafkaProducer.send", "torch.save"):
        assert name in named


PLACES: tuple[Point, ...] = (
    ("AdamW.step", 2, "before"),  # the second step of an update, whose first one changed the weights
    ("LocalStore.put_if_absent", 4, "after"),  # some files of the checkpoint are stored
    ("publish_checkpoint", 1, "after"),  # the manifest exists, and nobody knows
    ("KafkaProducer.send", 2, "before"),  # the next trainer announces it: one record of two is out
    ("TrainerCore.handle", 9, "before"),  # while the input is read again
    ("LocalStore.put", 1, "after"),  # the next update is planned
)


def test_killed_at_places_of_an_update(calm, stage):
    """One trainer after the other dies at a place of its own, until one is left alone."""
    for point in PLACES:
        stage.start(point)
        assert not stage.until_killed_or_made(), f"{point} was not reached"
    stage.finish()
    assert stage.account() == calm[0]


@pytest.mark.parametrize("seed", SEEDS)
def test_killed_at_random_instants(calm, stage, seed):
    expected, rng = calm[0], random.Random(seed)
    for _ in range(3):
        stage.start()
        time.sleep(rng.uniform(0.2, 1.2))
        stage.end(signal.SIGKILL)
    stage.finish()
    assert stage.account() == expected, f"seed {seed}"


@pytest.mark.skipif(not EVERYTHING, reason="every place of an update takes minutes: make exact")
@pytest.mark.timeout(3600)
def test_killed_at_every_place_of_an_update_and_of_a_start(calm, tmp_path, nursery, recorded):
    expected, points = calm
    every = [(p, False) for p in of_update(2, points)] + [(p, True) for p in of_the_start(points)]
    died = 0
    for number, (point, starting) in enumerate(every):
        stage = Stage(tmp_path / str(number), recorded, nursery)
        try:
            if starting:  # on a checkpoint with an optimizer: the version that a first trainer made
                stage.start(next(p for p in of_update(2, points) if p[0] == "Updater.update"))
                stage.until_killed_or_made()
                stage.end(signal.SIGKILL)
            stage.start(point)
            died += not stage.until_killed_or_made()
            stage.end(signal.SIGKILL)
            stage.finish()
            assert stage.account() == expected, point
        finally:
            stage.close()
        shutil.rmtree(stage.folder)
    print(f"\n{len(every)} places to die at, {died} deaths, 0 differences")
