"""A broker emptied for each test (KAFKA_BOOTSTRAP where set), with recorders on it, in threads or as processes."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from services.recorder.main import keyed, make_core, spec_of
from services.recorder.reading import look, records
from services.runtime.archive import read_raw, spans
from services.runtime.settings import dump_toml
from services.runtime.store import open_store
from services.runtime.topics_admin import declared
from tests.services.runtime.bus import RUN, Running, wait_for
from tests.services.runtime.conftest import bootstrap, make_bus  # noqa: F401  # fixtures

ROOT = Path(__file__).parents[3]


def patiently(condition, what):
    """Wait for what takes a second on a quiet machine, and a minute on one that is shared."""
    return wait_for(condition, 60, what)


class Recorders:
    """Instances of the recorder on one bus, and what they have recorded."""

    def __init__(self, bus, folder):
        self.bus = bus
        self.folder = folder
        self.settings = bus.settings
        self.store = open_store(self.settings.store)
        self._threads = []
        self._children = []

    def start(self, settings=None):
        """One in a thread."""
        settings = settings or self.settings
        spec = spec_of(settings)
        fields = {name: getattr(spec, name) for name in spec.__dataclass_fields__}
        running = Running(self.bus, make_core, {**fields, "settings": settings})
        self._threads.append(running)
        return running

    def child(self):
        """One as a process of its own, as it is deployed."""
        number = len(self._children)
        config = self.folder / f"child-{number}.toml"
        config.write_text(dump_toml(self.settings))
        ready = self.folder / f"child-{number}.json"
        log = self.folder / f"child-{number}.log"
        command = [sys.executable, "-m", "services.cli", "up", "--service", "recorder", "--config", str(config)]
        child = subprocess.Popen(
            [*command, "--ready-file", str(ready)], cwd=ROOT, stderr=log.open("wb"), env={**os.environ}
        )
        self._children.append(child)
        child.log = log
        patiently(lambda: '"caught up"' in log.read_text() or child.poll() is not None, "the child to catch up")
        assert child.poll() is None, log.read_text()
        return child

    def look(self):
        return look(self.store, RUN, keyed)

    def recorded(self):
        """(topic, partition) -> every recorded record, merged."""
        return {tuple(place): list(records(self.store, RUN, found)) for place, found in self.look().items()}

    def on_topics(self):
        """(topic, partition) -> every record as the broker holds it now."""
        found = spans(self.bus.bootstrap, list(declared(self.settings)))
        return {
            place: list(read_raw(self.bus.bootstrap, *place, span)) for place, span in found.items() if span.end > 0
        }

    def committed(self, topic):
        return self.bus.committed("recorder", topic)

    def close(self):
        for running in self._threads:
            running.service.stop()
        for child in self._children:
            if child.poll() is None:
                child.send_signal(signal.SIGCONT)
                child.kill()
            child.wait()
        for running in self._threads:
            if running.thread.is_alive():
                running.finish()


@pytest.fixture
def make_recorders(make_bus, tmp_path):  # noqa: F811
    made = []

    def make(store=None, session_ms=6000, **settings):
        runtime = {"tick_s": 0.05, "commit_s": 0.1, "drain_s": 8.0}
        bus = make_bus(
            kafka={"session_timeout_ms": session_ms},
            runtime=runtime,
            store=store or {"url": f"file://{tmp_path}/store"},
            recorder={"segment_s": 0.5, **settings},
        )
        made.append(Recorders(bus, tmp_path))
        return made[-1]

    yield make
    for recorders in made:
        recorders.close()


@pytest.fixture
def recorders(make_recorders):
    return make_recorders()
