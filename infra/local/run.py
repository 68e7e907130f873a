"""`rollstream run`: one command from nothing to a trained policy, report and audit; resumes where it stopped."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.live import Live

from infra.local.prepare import prepare
from infra.local.rundir import RunDir, require_space
from infra.local.space import SpaceWatch
from infra.local.stack import SERVICES, Stack, read_json
from infra.local.watch import Watcher, read_everything
from infra.prepare.materials import require_inputs
from schemas.policy import PolicyGate, TrainingUpdate
from schemas.record import Record
from schemas.verification import VerificationAlarm
from services.runtime.errors import UserError
from services.runtime.screen import LINE_CHARS, ReaderGone, Unwritable, block, cell, console, drop_output, say
from services.runtime.settings import SECRETS, Kafka, RunSettings, Section, decide, load, overruled
from services.runtime.store import open_hidden, open_store
from services.tasks import trust

INTERRUPTED = 130
COMMAND_LINE = "the command line"
PLAIN_EVERY_S = 5.0


@dataclass(frozen=True)
class Outcome:
    """How a run ended; `exit_code` 0: finished and balanced, 1: the audit does not balance, 130: interrupted."""

    exit_code: int
    report: Path | None


def open_run(root: Path, config: Path | None, overrides: dict[str, Any]) -> tuple[RunDir, RunSettings]:
    """The run of this folder, which the caller has claimed: a new one from the configuration, or the one that is there.

    Raises UserError when the folder's run was started with other settings.
    """
    run = RunDir(root)
    if not run.exists():
        settings = decide(config, {**overrides, "run_dir": str(run.root)}, COMMAND_LINE)
        require_inputs(settings)
        return run, settings
    _require_same_environment(run)
    told = {**overrides, "run_dir": str(run.root)}
    # What is not told again stays as it was begun: without a file, only what is said now can differ.
    wanted = decide(config or run.config, told, COMMAND_LINE) if config is not None or overrides else None
    there = run.settings(_secrets(wanted) if wanted else {})
    if wanted is not None:
        different = _differences(wanted, there)
        if different:
            raise UserError(
                f"this folder's run was started with other settings: {', '.join(different)}",
                str(run.config),
                "leave the settings out to continue it, or choose another --run-dir; nothing was changed",
            )
    return run, there


def _require_same_environment(run: RunDir) -> None:
    """A run goes on as it began: a variable that was set since decides nothing, and is not passed over in silence."""
    found = overruled(run.config)
    if not found:
        return
    secrets = {name: value for name, value in os.environ.items() if name.lower().rpartition("__")[2] in SECRETS}
    if _differences(load(run.config), decide(run.config, {}, COMMAND_LINE, environment=secrets)):
        raise UserError(
            f"the environment is not what this folder's run was started with: {'; '.join(found)}",
            str(run.config),
            "unset these variables to continue it, or choose another --run-dir; nothing was changed",
        )


def _secrets(given: RunSettings) -> dict[str, dict[str, str]]:
    """The secrets of a configuration by section: a run's own file holds none, those that are given again stand in."""
    found = {
        name: {key: value for key, value in section if key in SECRETS and value}
        for name, section in given
        if isinstance(section, Section)
    }
    return {name: secrets for name, secrets in found.items() if secrets}


def _differences(wanted: RunSettings, there: RunSettings) -> list[str]:
    """Dotted names of settings that differ, beside those that preparation fills in."""
    filled = {"taskset_digest", "base_manifest", "store"}
    out = []
    for name, value in wanted:
        other = getattr(there, name)
        if name in filled or value == other:
            continue
        if hasattr(value, "model_fields_set"):
            out += [f"{name}.{key}" for key, inner in value if key not in SECRETS and inner != getattr(other, key)]
        else:
            out.append(name)
    return out


class Display:
    """One place that writes to the terminal: a live panel on a tty, a plain line now and then elsewhere."""

    def __init__(self, settings: RunSettings) -> None:
        from services.monitor.progress import Progress

        self.console = console()
        self.progress = Progress(settings, time.time)
        self.gone = False
        """Nobody reads what is printed: the other end of a pipe was closed."""
        self._live: Live | None = None
        self._last = 0.0
        self._lock = threading.Lock()

    def say(self, text: str) -> None:
        """Print lines of text. A run goes on to its clean end when nobody reads any more."""
        self._show(lambda: self.console.print(block(text), soft_wrap=True))

    def _show(self, printing: Callable[[], None]) -> None:
        if self.gone:
            return
        try:
            printing()
        except (ReaderGone, Unwritable):
            self.gone = True
            drop_output()

    def feed(self, message: Any) -> None:
        with self._lock:
            self.progress.feed(message.record, message.timestamp_ms)

    def preparation(self, record: dict[str, Any]) -> None:
        """Show one progress record of the preparation."""
        now = time.monotonic()
        text = record.get("text") or ", ".join(f"{k} {_short(v)}" for k, v in record.items() if k != "event")
        if record.get("event") != "coldstart" or now - self._last > 2 or record.get("final"):
            self._last = now
            self.say(f"[{cell(record.get('event', 'prepare'))}] {cell(text)}")

    def waiting(self, names: list[str]) -> None:
        """Say every two seconds which services are still awaited."""
        if time.monotonic() - self._last > 2:
            self._last = time.monotonic()
            self.say(f"waiting for {', '.join(names)}")

    @contextlib.contextmanager
    def live(self) -> Iterator[None]:
        if not self.console.is_terminal:
            yield
            return
        with Live(console=self.console, refresh_per_second=2, transient=True) as live:
            self._live = live
            try:
                yield
            finally:
                self._live = None

    def refresh(self) -> None:
        """Show the present state."""
        with self._lock:
            if self._live is not None:
                live, panel = self._live, self.progress.panel()
                self._show(lambda: live.update(panel))
            elif time.monotonic() - self._last > PLAIN_EVERY_S:
                self._last = time.monotonic()
                self._show(lambda: say(self.progress.line()))


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def run(root: Path, config: Path | None, overrides: dict[str, Any], trusted: bool = False) -> Outcome:
    """Prepare (or resume), start the stack, watch it to its end, report and audit.

    `trusted`: whoever made the backup that the run was restored from is trusted with its hidden tests.
    """
    with RunDir(root).claimed():
        return _claimed(root, config, overrides, trusted)


def _claimed(root: Path, config: Path | None, overrides: dict[str, Any], trusted: bool) -> Outcome:
    from services.runtime.jail.bubblewrap import find_bwrap

    folder, settings = open_run(root, config, overrides)
    decided = overruled(config, **overrides) if not folder.exists() else []
    if settings.taskset_digest:
        if trusted:
            trust.trust(open_hidden(settings), settings.taskset_digest)
        trust.require_trusted(open_hidden(settings), settings.taskset_digest)
    if settings.isolation.backend == "bubblewrap":
        find_bwrap()  # before minutes of cold start, not after them
    stop = _stop_on_signals()
    display = Display(settings)
    display.say(f"run '{settings.run_id}' in {root} (Ctrl-C stops cleanly; the same command goes on)")
    for line in decided:
        display.say(f"setting {line}")
    began = time.time()
    if settings.base_manifest:
        folder.renew()
        open_store(settings.store)  # wrong or absent: said now, and not in a service's log
        open_hidden(settings)
    else:
        settings = prepare(settings, folder, display.preparation)
    require_space(folder.root, 200)
    stack = Stack(folder, settings)
    watcher: Watcher | None = None
    try:
        display.say(f"starting broker and {len(SERVICES)} services")
        stack.start(lambda waiting: _waiting(display, waiting, stop))
        watcher = Watcher(stack.cluster, display.feed)
        watcher.start()
        space = SpaceWatch(places_of(folder, settings))
        with display.live():
            while not stack.finished and not stop.is_set():
                stack.supervisor.check()
                display.progress.trouble = space.trouble()
                display.refresh()
                stop.wait(0.25)
        finished = stack.finished
        display.say("draining the services" if finished else "stopping: draining the services")
        killed = stack.stop_services()
        if killed:
            display.say(f"had to be killed after their grace time: {', '.join(killed)}")
        watcher.settle()
        extra = {"began": began, "ended": time.time(), "restarts": stack.restarts(), "finished": finished}
        return conclude(folder, settings, stack.cluster, watcher, extra, display)
    finally:
        if watcher is not None:
            watcher.stop()
        stack.close()


def places_of(folder: RunDir, settings: RunSettings) -> list[Path]:
    """Folders of this machine into which the run writes: its own, and a local object store's."""
    stores = (section.url for section in (settings.store, settings.hidden_store))
    local = [Path(url.removeprefix("file://")) for url in stores if url.startswith("file://")]
    return [folder.root, *(path for path in local if path.is_dir() and not path.is_relative_to(folder.root))]


def _waiting(display: Display, waiting: list[str], stop: threading.Event) -> None:
    if stop.is_set():
        raise UserError("interrupted while starting; nothing was lost", do="the same command goes on")
    display.waiting(waiting)


def conclude(
    folder: RunDir, settings: RunSettings, cluster: Kafka, watcher: Watcher, extra: dict[str, Any], display: Display
) -> Outcome:
    """Write the report, print the audit; the records come from the watcher, or from the topics when it failed."""
    from services.monitor.report import write_report
    from services.runtime.ledger import audit

    records = watcher.records if watcher.failure is None else read_everything(cluster)
    preparation = read_json(folder.preparation)
    result = audit(records, over=extra["finished"])
    for line in result.lines():
        display.say(cell(line, LINE_CHARS))
    try:
        report = write_report(records, folder.root, settings, {**preparation, **extra, "audit": result})
    except OSError as e:
        raise UserError(
            f"the report cannot be written: {e.strerror or e}",
            str(folder.root),
            "free some space there, then the same command writes it; nothing of the run is lost",
        ) from e
    display.say(f"report: {report}")
    if not extra["finished"]:
        display.say(f"stopped before the end; go on with: rollstream run --run-dir {folder.quoted}")
        return Outcome(INTERRUPTED, report)
    unfinished = _why_early(records, settings, folder)
    if unfinished:
        display.say(unfinished)
    else:
        display.say(f"read one trial: rollstream trial {settings.run_id}/00000000/0 --run-dir {folder.quoted}")
    return Outcome(0 if result.balanced and not unfinished else 1, report)


def _why_early(records: list[Record], settings: RunSettings, folder: RunDir) -> str | None:
    """Why training ended before its updates were done, for a person; None when it did not (or its time was over)."""
    done = sum(1 for r in records if isinstance(r, TrainingUpdate))
    alarm = next((r for r in records if isinstance(r, VerificationAlarm) and r.severity == "stop"), None)
    if alarm is not None:
        return (
            f"training was stopped after {done} of {settings.dispatch.updates} updates: alarm {cell(alarm.alarm_id)}\n"
            f"  {cell(alarm.detail)}\n"
            f"  what to do: find out how it could pass before any version of this run is used; report: {folder.report}"
        )
    if done >= settings.dispatch.updates or (settings.dispatch.wall_s and done):
        return None
    stopped = [r for r in records if isinstance(r, PolicyGate) and r.decision in ("held", "halted")]
    if stopped:
        last = stopped[-1]
        what = f"the gate {last.decision} version {last.policy_version}: {cell(_failed(last.findings))}"
        do = "change the [gate] bounds or the cold start in a new run"
    else:
        what = "no group could be trained on for a long time (all excluded, see the report's exclusions)"
        do = "choose easier tasks or a better start"
    ended = f"training ended after {done} of {settings.dispatch.updates} updates: {what}"
    return f"{ended}\n  what to do: {do}; report: {folder.report}"


def _failed(findings: str) -> str:
    """What a gate's findings say of its failed checks; the text itself where it says nothing of the kind."""
    try:
        failed = [f for f in json.loads(findings) if not f.get("ok", True)]
        return "; ".join(f"{f['check']} is {f['value']}, wanted {f['bound']}" for f in failed) or findings
    except (ValueError, KeyError, TypeError, AttributeError):
        return findings


def _stop_on_signals() -> threading.Event:
    """SIGINT and SIGTERM set the event; a second one ends at once (the kernel then ends the children too)."""
    stop = threading.Event()

    def handler(number: int, frame: object) -> None:
        del number, frame
        if stop.is_set():
            sys.exit(INTERRUPTED)
        stop.set()

    signal.signal(signal.SIGINT, handler)
    signal.signal(signal.SIGTERM, handler)
    return stop
