"""The loop every service stands on: poll, handle, commit by watermark, drain; the core never sees Kafka."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path

from kafka import TopicPartition
from kafka.consumer.fetcher import ConsumerRecord

from schemas.topics import Topic
from services.runtime import dlq, lifecycle
from services.runtime.clock import Clock, Deadline, SystemClock
from services.runtime.commits import Committer
from services.runtime.consumer import LONG_POLL_MS, Source, make_consumer
from services.runtime.context import MakeCore, ServiceContext, ServiceSpec
from services.runtime.core import BaseCore, Effects
from services.runtime.crashes import CrashMemory
from services.runtime.driver import Driver, FailStop
from services.runtime.errors import UserError
from services.runtime.health import HealthServer
from services.runtime.logs import Log, bridge
from services.runtime.metrics import Metrics
from services.runtime.ownership import Ownership
from services.runtime.producer import Outbox
from services.runtime.settings import RunSettings
from services.runtime.startup import Startup, Stopped
from services.runtime.watermark import Watermarks
from services.runtime.workers import Workers


class Service:
    """One running service. `run` blocks until it ends and returns the exit code; `stop` works from any thread."""

    def __init__(
        self,
        spec: ServiceSpec,
        make_core: MakeCore,
        settings: RunSettings,
        *,
        ready_file: Path | None = None,
        health_port: int = 0,
        clock: Clock | None = None,
        log: Log | None = None,
    ) -> None:
        self.spec = spec
        self.settings = settings
        self.clock = clock or SystemClock()
        self.log = log or Log(spec.name, settings.run_id)
        self.metrics = Metrics(spec.name)
        self._make_core = make_core
        self._ready_file = ready_file
        self._health_port = health_port
        self._stop = threading.Event()
        self._failure: BaseException | None = None
        self._draining = False
        self._ready = False
        self._caught_up = False
        self._beat = self.clock.monotonic()
        self._watermarks = Watermarks()
        memory = ready_file.with_name(f"{spec.name}.crash.json") if ready_file else None
        self._crashes = CrashMemory(memory, settings.runtime.crash_tries)
        self._carry: deque[ConsumerRecord] = deque()
        self._main: Source | None = None
        self._side: Source | None = None
        self._ownership: Ownership | None = None
        self._commits: Committer | None = None
        self._said_stuck = 0.0
        self.health: HealthServer | None = None

    # --- from any thread -------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Ask for a clean end: drain, flush, commit, leave."""
        self._stop.set()

    def fail(self, error: BaseException) -> None:
        """End with this error; the first one counts."""
        if self._failure is None:
            self._failure = error
        self._stop.set()

    def _emit(self, make: Callable[[], Effects]) -> bool:
        return self._driver.emit(make)

    @property
    def live(self) -> bool:
        return self.clock.monotonic() - self._beat < self.settings.runtime.stuck_s

    @property
    def ready(self) -> bool:
        return self._ready and self._context.gate_open and not self._stop.is_set()

    # --- life ------------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Run until stopped or failed; returns an exit code of `lifecycle`."""
        undo = bridge(self.log)
        try:
            try:
                self._start()
                self._loop()
            except Stopped:
                pass
            except Exception as e:  # reported below with its exit code; the shutdown still commits what is finished
                self.fail(e)
            self._shutdown()
        finally:
            if self.health:
                self.health.close()
            undo()
        return self._report()

    def _report(self) -> int:
        error = self._failure
        if error is None:
            self.log.info("stopped")
            return lifecycle.EXIT_OK
        if isinstance(error, UserError):
            self.log.error("stopped", message=str(error))
            return lifecycle.EXIT_USER
        if isinstance(error, FailStop):
            self.log.error("stopped on purpose; a person must look", message=str(error))
            return lifecycle.EXIT_FAIL_STOP
        what = "crashed; unfinished records will be handled again"
        self.log.exception(what, error.__cause__ or error, message=str(error))
        return lifecycle.EXIT_CRASH

    def _start(self) -> None:
        runtime = self.settings.runtime
        self._context = ServiceContext(
            self.settings, clock=self.clock, log=self.log, registry=self.metrics.registry, stop=self._stop,
            emit=self._emit, fail=self.fail,
        )  # fmt: skip
        self.health = HealthServer(lambda: self.live, lambda: self.ready, self._scrape, self._health_port)
        self.health.start()
        if self._ready_file:
            lifecycle.write_ready_file(self._ready_file, self.health.port)
        startup = Startup(self.spec, self.settings, clock=self.clock, log=self.log, stop=self._stop, turn=self._turn)
        producer = startup.connect()
        counts = startup.topics(producer)
        self._outbox = Outbox(
            producer, self.clock, self.metrics, service=self.spec.name, failed=self.fail,
            max_records=runtime.unacknowledged_records, max_bytes=runtime.unacknowledged_bytes,
        )  # fmt: skip
        policy = dlq.DeadLetterPolicy(runtime.dead_letters_in_a_row, runtime.dead_letter_ratio)
        self._driver = Driver(
            service=self.spec.name, outbox=self._outbox, watermarks=self._watermarks, crashes=self._crashes,
            limit=dlq.DeadLetterLimit(policy), clock=self.clock, log=self.log, metrics=self.metrics,
            stop=self._stop, fail=self.fail,
        )  # fmt: skip
        self._workers = self._driver.workers = Workers(
            self.spec.workers, self._driver.job_done, max_jobs=self.spec.max_jobs,
            max_bytes=self.spec.max_job_bytes, discarded=self.metrics.discarded,
        )  # fmt: skip
        self._driver.core = self._make_core(self._context)
        self._ticks = getattr(type(self._driver.core), "tick", None) is not BaseCore.tick
        self._open_sources(counts)

    def _open_sources(self, counts: dict[str, int]) -> None:
        spec, name = self.spec, f"{self.settings.run_id}.{self.spec.name}"

        def partitions(topics: tuple[Topic, ...]) -> list[TopicPartition]:
            return [TopicPartition(t.name, n) for t in topics for n in range(counts[t.name])]

        if spec.broadcast:
            source = Source(make_consumer(self.settings, name, None), self.log, self.metrics)
            source.start_at(partitions(spec.broadcast), {})
            if spec.inputs:
                self._side = source
                self._read_side_to_end()
                threading.Thread(target=self._follow_side, name="broadcast", daemon=True).start()
            else:
                self._main = source
                self._driver.assigned({tp.partition for tp in partitions(spec.broadcast)})
        if not spec.inputs:
            return
        consumer = make_consumer(self.settings, name, name)
        self._main = Source(consumer, self.log, self.metrics, strict=spec.pinned is not None)
        self._commits = Committer(
            consumer, self._watermarks, self._crashes, every_s=self.settings.runtime.commit_s,
            clock=self.clock, log=self.log, metrics=self.metrics,
        )  # fmt: skip
        if spec.pinned is not None:
            owned = partitions(spec.inputs)
            self._watermarks.open((tp.topic, tp.partition) for tp in owned)
            self._main.start_at(owned, spec.pinned())
            self._driver.assigned({tp.partition for tp in owned})
            return
        self._ownership = Ownership(
            consumer, self._watermarks, self._workers, self._outbox, clock=self.clock, log=self.log,
            revoke_s=self.settings.runtime.revoke_s, committed=self._commits.note,
        )  # fmt: skip
        consumer.subscribe([t.name for t in spec.inputs], listener=self._ownership)

    def _turn(self) -> None:
        """Once per turn of any loop on the main thread."""
        self._beat = self.clock.monotonic()
        if self._stop.is_set():
            raise Stopped

    # --- broadcast topics beside a group -----------------------------------------------------------------------------

    def _read_side_to_end(self) -> None:
        assert self._side is not None
        while True:
            self._turn()
            for record in self._side.poll(200):
                self._driver.handle(record, tracked=False)
            if self._side.caught_up:
                return

    def _follow_side(self) -> None:
        assert self._side is not None
        try:
            while not self._stop.is_set():
                for record in self._side.poll(LONG_POLL_MS):
                    self._driver.handle(record, tracked=False)
        except Exception as e:
            if not self._stop.is_set():
                self.fail(e)

    # --- the poll thread ---------------------------------------------------------------------------------------------

    def _loop(self) -> None:
        next_tick = next_look = 0.0
        while not self._stop.is_set():
            self._beat = now = self.clock.monotonic()
            self._step(self.settings.runtime.tick_s if self._ticks else LONG_POLL_MS / 1000)
            if not self._caught_up:
                self._check_caught_up()
            elif self._ticks and now >= next_tick:
                next_tick = now + self.settings.runtime.tick_s
                self._timed("tick", self._driver.tick)
            if self._commits:
                self._timed("commit", self._commits.maybe)
            if now >= next_look:
                next_look = now + 5.0
                self._look_around(now)

    def _timed(self, phase: str, work: Callable[[], None]) -> None:
        start = self.clock.monotonic()
        work()
        self.metrics.phase(phase, self.clock.monotonic() - start)

    def _step(self, wait_s: float) -> None:
        """Hold or take in records once. While full, polling goes on with everything paused: membership is kept."""
        assert self._main is not None
        full = self._workers.full or self._outbox.full
        assigned = self._main.consumer.assignment()
        wide = self._watermarks.wide(self.settings.runtime.window_records)
        self._main.pause_only(assigned if full or self._carry else {TopicPartition(*key) for key in wide})
        start = self.clock.monotonic()
        waits = bool(full or self._carry)
        records = self._main.poll(0 if waits else int(wait_s * 1000))
        self.metrics.phase("poll", self.clock.monotonic() - start)
        self._apply_changes()
        self._carry.extend(records)
        if full:
            self._timed("wait", lambda: self._wait_for_room(min(wait_s, 0.1)))
        self._timed("handle", self._work)
        if not records and not self._carry:
            self.metrics.lag.set(0)

    def _wait_for_room(self, seconds: float) -> None:
        self._workers.room.clear()
        if self._workers.full:
            self._workers.room.wait(seconds)
        elif self._outbox.full:
            self._outbox.wait_for_room(seconds)

    def _work(self) -> None:
        last: ConsumerRecord | None = None
        tracked = bool(self.spec.inputs)
        while self._carry and not self._stop.is_set():
            if self._workers.full or self._outbox.full:
                break
            last = self._carry.popleft()
            self._driver.handle(last, tracked=tracked)
        if last is not None:
            self.metrics.lag.set(max(0.0, (self.clock.now_ms() - last.timestamp) / 1000))

    def _apply_changes(self) -> None:
        """Tell the core what a rebalance took and gave, before any record that came after it."""
        if self._ownership is None or self._main is None:
            return
        for change in self._ownership.changes():
            self._carry.clear()  # kept partitions were sought back to the first record not handed out
            self.metrics.rebalanced()
            self._main.forget(change.lost)
            now = self._ownership.owned
            if lost := {tp.partition for tp in change.lost} - {tp.partition for tp in now}:
                self._driver.revoked(lost)
            if added := {tp.partition for tp in change.added}:
                self._driver.assigned(added)
            self._main.catch_up_with(change.added & now)
            self._caught_up = self._caught_up and not change.added
            self.metrics.assigned.set(len(now))
            self.log.info("assignment", owned=len(now), lost=len(change.lost), added=len(change.added))

    def _check_caught_up(self) -> None:
        """Once after each assignment, when everything that stood there has been handed to the core."""
        assert self._main is not None
        joined = self._ownership is None or self._main.consumer.assignment() or self._ownership.joined
        if self._carry or not joined or not self._main.caught_up:
            return
        self._driver.caught_up()
        self._caught_up = self._ready = True
        self.metrics.ready.set(1)
        self.log.info("caught up")

    def _look_around(self, now: float) -> None:
        assert self._main is not None
        if (stalled := self._main.stalled(now)) and not self._carry:
            self.log.warning("partitions with unread records do not advance", partitions=stalled)
        self.metrics.stalled.set(len(stalled))
        stuck = self._outbox.stuck_s()
        if stuck > 5 and now - self._said_stuck > 10:
            self._said_stuck = now
            self.log.warning("the broker acknowledges nothing; holding back", seconds=round(stuck, 1))

    def _scrape(self) -> bytes:
        if hasattr(self, "_workers"):
            jobs, size = self._workers.load
            self.metrics.inflight_jobs.set(jobs)
            self.metrics.inflight_bytes.set(size)
            self.metrics.unacknowledged.set(self._outbox.outstanding)
        self.metrics.inflight_records.set(self._watermarks.unfinished())
        self.metrics.ready.set(1 if self.ready else 0)
        return self.metrics.text()

    # --- the end -----------------------------------------------------------------------------------------------------

    def _shutdown(self) -> None:
        """Not ready, intake stopped, drain, flush, commit, leave: each step within what is left of one budget."""
        self._stop.set()
        if self._main is None:
            return
        crashed = self._failure is not None
        deadline = Deadline(self.clock, 2.0 if crashed else self.settings.runtime.drain_s)
        own_process = threading.current_thread() is threading.main_thread()
        dog = lifecycle.watchdog(deadline.left() + 15.0, self.log) if own_process else None
        if not self._workers.drain(deadline):
            self.log.warning("running jobs did not end within the drain budget; their inputs are handled again")
        self._driver.close()
        if not self._outbox.flush(deadline.left(1.0)):
            self.log.warning("not every output was acknowledged; their inputs are handled again")
        if self._commits:
            self._commits.now(deadline.left(2.0))
        if self._ownership:
            self._ownership.closing = True
        for source in (self._main, self._side):
            if source is not None:
                try:
                    source.consumer.close(timeout_ms=2_000)
                except Exception as e:  # leaving is a courtesy: the session expires by itself
                    self.log.warning("leaving the group failed", error=repr(e))
        self._outbox.close(1.0)
        if dog:
            dog.cancel()


def run_service(
    spec: ServiceSpec,
    make_core: MakeCore,
    settings: RunSettings,
    *,
    ready_file: Path | None = None,
    health_port: int = 0,
) -> int:
    """Run a service on the main thread until SIGTERM; returns the exit code for `sys.exit`."""
    service = Service(spec, make_core, settings, ready_file=ready_file, health_port=health_port)
    lifecycle.install_signals(service.stop)
    return service.run()
