"""The trainer as a process on a real broker: publishes its base, trains, is killed, and every group is in once."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from infra.broker.testing import running_broker
from schemas import codec, topics
from services.runtime.checkpoints import CheckpointMeta, latest_manifest, load_manifest, publish_checkpoint
from services.runtime.settings import dump_toml
from services.runtime.store_local import LocalStore
from tests.services.runtime.bus import RUN, Bus, wait_for
from tests.services.trainer.core_world import admission, calls

UPDATES, BATCH = 5, 3
PROGRAM = (
    "import sys; from pathlib import Path; from services.runtime.settings import load; "
    "from services.trainer.main import main; sys.exit(main(load(Path(sys.argv[1])), None))"
)


class Stage:
    """Broker and store; the trainer is a process that may be killed."""

    def __init__(self, folder: Path, bus: Bus, config: Path, store: LocalStore) -> None:
        self.folder, self.bus, self.config, self.store = folder, bus, config, store
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self.folder / "trainer.log").open("ab") as log:
            command = [sys.executable, "-c", PROGRAM, str(self.config)]
            self.process = subprocess.Popen(command, stderr=log, cwd=Path(__file__).parents[3])

    def end(self, number: int) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            os.kill(self.process.pid, number)
        return self.process.wait(timeout=30)

    def records(self, topic) -> list:
        return [codec.decode(topic.record, r.value, r.headers) for r in self.bus.raw(topic.name)]

    def version(self) -> int:
        return latest_manifest(self.store, RUN).version

    def send_group(self, number: int) -> None:
        group = f"{RUN}/{number:08d}"
        trials = (f"{group}/0", f"{group}/1")
        for trial in trials:
            for record in calls(trial):
                self._send(topics.ROLLOUT_INVOCATION, replace(record, run_id=RUN))
        self._send(topics.GROUP_ADMISSION, replace(admission(number), run_id=RUN, group_id=group, member_trials=trials))

    def _send(self, topic, record) -> None:
        key = record.group_id.encode()
        self.bus._producer.send(topic.name, key=key, value=codec.encode(record), headers=codec.headers(record))


@pytest.fixture
def stage(tmp_path):
    store = LocalStore(tmp_path / "store", fsync=False)
    key, _ = publish_checkpoint(store, {"model.bin": b"base"}, CheckpointMeta(RUN, 0))
    with running_broker(tmp_path / "broker") as broker:
        bus = Bus(
            broker.bootstrap,
            store={"url": f"file://{tmp_path / 'store'}"},
            trainer={"kind": "synthetic", "synthetic_update_s": 0.2, "keep_checkpoints": 9},
            dispatch={"updates": UPDATES, "batch_groups": BATCH},
            admission={"max_lag": 9},
            base_manifest=key,
        )
        config = tmp_path / "run.toml"
        config.write_text(dump_toml(bus.settings))
        made = Stage(tmp_path, bus, config, store)
        yield made
        if made.process is not None and made.process.poll() is None:
            made.end(signal.SIGKILL)
        bus.close()


def test_killed_twice_every_group_is_trained_once(stage):
    for number in range(UPDATES * BATCH):
        stage.send_group(number)
    stage.bus._producer.flush(30)
    for version in (1, 3):
        stage.start()
        wait_for(lambda version=version: stage.version() >= version, 40, what=f"version {version}")
        stage.end(signal.SIGKILL)
    stage.start()
    wait_for(lambda: stage.version() == UPDATES, 40, what="the last version")
    wait_for(lambda: len(stage.records(topics.TRAINING_UPDATE)) >= UPDATES, what="the last update's record")
    assert stage.end(signal.SIGTERM) == 0
    updates = {u.policy_version: u.group_ids for u in stage.records(topics.TRAINING_UPDATE)}
    assert list(updates) == [1, 2, 3, 4, 5]
    trained = list(itertools.chain(*updates.values()))
    assert sorted(trained) == [f"{RUN}/{n:08d}" for n in range(UPDATES * BATCH)]
    published = {p.policy_version: p for p in stage.records(topics.POLICY_PUBLISHED)}
    for version, record in published.items():
        manifest = load_manifest(stage.store, record.manifest_uri, record.manifest_digest)
        assert manifest.version == version
        assert manifest.meta.group_ids == updates.get(version, ())
