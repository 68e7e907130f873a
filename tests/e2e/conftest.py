"""A real stack for end-to-end tests: embedded broker, local store, every service as its own process."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infra.local.prepare import prepare
from infra.local.rundir import RunDir
from infra.local.stack import Stack
from infra.local.watch import Watcher
from services.runtime.ledger import audit
from services.runtime.settings import RunSettings, load

TINY_MODEL = {"hidden": 32, "layers": 1, "heads": 2, "feed_forward": 64}
TINY_START = {"max_steps": 2, "max_wall_s": 20.0, "threads": 1}
OPEN_GATE = {"min_entropy": 0.0, "min_valid_actions": 0.0, "probe_prompts": 2}
"""An untrained policy acts at random: the gate is told to let it through."""


@pytest.fixture(scope="session")
def cache(tmp_path_factory) -> Iterator[Path]:
    """One cold-start cache for the whole test session."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("ROLLSTREAM_CACHE", str(folder))
        yield folder


def tiny(root: Path, **sections) -> RunSettings:
    """Settings of a run that needs no learned policy; `sections` override."""
    base = {
        "run_dir": str(root),
        "run_id": "tiny",
        "model": TINY_MODEL,
        "coldstart": TINY_START,
        "gate": OPEN_GATE,
        "evaluation": {"train_tasks": 4, "heldout_bugs": 2, "heldout_families": 2, "samples": 1},
        "sandbox": {"workers": 1},
        "verifier": {"workers": 1},
    }
    for name, value in sections.items():
        base[name] = {**base.get(name, {}), **value} if isinstance(value, dict) else value
    return load(None, **base)


class Running:
    """A started stack with its watcher; drives the supervisor from the test's own thread."""

    def __init__(self, stack: Stack, watcher: Watcher) -> None:
        self.stack = stack
        self.watcher = watcher

    def count(self, kind: type, where: Callable[[object], bool] = lambda r: True) -> int:
        return sum(1 for r in list(self.watcher.records) if isinstance(r, kind) and where(r))

    def until(self, condition: Callable[[], bool], timeout_s: float, what: str) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                tails = {n: p.log_tail(4) for n, p in self.stack.supervisor.processes.items()}
                pytest.fail(f"{what} did not happen within {timeout_s} s; logs: {tails}")
            self.stack.supervisor.check()
            time.sleep(0.05)


@contextlib.contextmanager
def started(stack: Stack) -> Iterator[Running]:
    """A prepared stack, started and watched; everything is ended and reaped afterwards."""
    watcher = None
    try:
        stack.start()
        watcher = Watcher(stack.cluster)
        watcher.start()
        yield Running(stack, watcher)
    finally:
        if watcher is not None:
            watcher.stop()
        stack.close()


@contextlib.contextmanager
def running(settings: RunSettings, services: tuple[str, ...] | None = None) -> Iterator[Running]:
    """Prepare and start a stack; everything is ended and reaped afterwards."""
    run = RunDir(Path(settings.run_dir))
    with run.claimed():
        settings = prepare(settings, run, lambda record: None)
        with started(Stack(run, settings, services) if services else Stack(run, settings)) as live:
            yield live


def watched_to_its_end(run: RunDir, timeout_s: float = 200.0) -> list[object]:
    """Start a run that was put back and wait until it is over, its audit balanced; all that its topics hold then."""
    with run.claimed(), started(Stack(run, run.settings())) as live:
        live.until(lambda: live.stack.finished, timeout_s, "the end of the run that was put back")
        live.stack.stop_services()
        live.watcher.settle()
        result = audit(live.watcher.records)
        assert result.balanced, "\n".join(result.lines())
        return list(live.watcher.records)
