"""One service from start to end: what it needs, its poll loop, and a shutdown that loses nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable

from kafka import TopicPartition

from schemas.access import group_of
from schemas.topics import Topic
from services.runtime import dlq, lifecycle
from services.runtime.clock import Deadline
from services.runtime.commits import Committer
from services.runtime.consumer import LONG_POLL_MS, Source, partitions_of
from services.runtime.context import MakeCore, ServiceContext, ServiceSpec
from services.runtime.core import Effects
from services.runtime.crashes import CrashMemory
from services.runtime.driver import Driver, FailStop
from services.runtime.errors import UserError
from services.runtime.logs import bridge
from services.runtime.ownership import Ownership
from services.runtime.polling import PollLoop
from services.runtime.process import SAY_EVERY_S, ServiceProcess, Stopped
from services.runtime.producer import Outbox
from services.runtime.settings import RunSettings
from services.runtime.startup import Startup
from services.runtime.store import StoreUnavailable
from services.runtime.watermark import Watermarks
from services.runtime.workers import Workers

__all__ = ["Service", "run_service"]

_FOLLOWER = "broadcast"


class Service:
    """One running service. `run` blocks until it ends and returns the exit code; `stop` works from any thread."""

    def __init__(
        self, spec: ServiceSpec, make_core: MakeCore, settings: RunSettings, process: ServiceProcess | None = None
    ) -> None:
        self.spec = spec
        self.settings = settings
        self.process = process or ServiceProcess(spec.name, settings)
        self.clock = self.process.clock
        self.log = self.process.log
        self.metrics = self.process.metrics
        self._make_core = make_core
        self._stop = self.process.stop
        self._failure: BaseException | None = None
        self._store_said_at = float("-inf")
        self._was_ready = False
        self._watermarks = Watermarks()
        self._crashes = CrashMemory(self.process.crash_file, settings.runtime.crash_tries)
        self._outbox: Outbox | None = None
        self._workers: Workers | None = None
        self._driver: Driver | None = None
        self._side: Source | None = None
        self._follower: threading.Thread | None = None
        self._loop: PollLoop | None = None
        self._context = ServiceContext(
            settings, service=spec.name, clock=self.clock, log=self.log, registry=self.metrics.registry,
            stop=self._stop, emit=self._emit, fail=self.fail, store_down=self._store_down,
        )  # fmt: skip

    # --- from any thread -------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Ask for a clean end: drain, flush, commit, leave."""
        self._stop.set()

    def fail(self, error: BaseException) -> None:
        """End with this error; the first one counts."""
        if self._failure is None:
            self._failure = error
        self._stop.set()

    @property
    def ready(self) -> bool:
        """Caught up, not held back by the core, and not on the way out."""
        loop = self._loop
        return loop is not None and loop.ready and self._context.gate_open and not self._stop.is_set()

    def _emit(self, make: Callable[[], Effects]) -> bool:
        assert self._driver is not None, "emit before the core was made"
        return self._driver.emit(make)

    def _beat(self) -> None:
        self.process.beat()
        if (ready := self.ready) != self._was_ready:
            self._was_ready = ready
            self.log.info("ready" if ready else "not ready")

    def _store_down(self, error: StoreUnavailable) -> None:
        """Before there is a core, a store that is down is waited for as a broker is; afterwards every job decides."""
        self.metrics.store_unavailable()
        if self._driver is None or hasattr(self._driver, "core"):
            raise error
        if self.clock.monotonic() - self._store_said_at > SAY_EVERY_S:
            self._store_said_at = self.clock.monotonic()
            self.log.warning("waiting for the object store", error=str(error))
        self.process.starting()  # its caller reads on in one go
        self._stop.wait(1.0)

    # --- life ------------------------------------------------------------------------------------------------------

    def run(self) -> int:
        """Run until stopped or failed, and stay where the process is to; returns an exit code of `lifecycle`."""
        self.process.started()
        self.process.is_ready = lambda: self.ready
        self.process.before_scrape = self._measure
        undo = bridge(self.log)
        try:
            try:
                self._loop = self._start()
                self._loop.run(self._beat)
                if self.spec.raw and self._failure is None:
                    self._loop.read_out(Deadline(self.clock, self.settings.runtime.drain_s / 2))
            except Stopped:
                pass
            except Exception as e:  # reported below with its exit code; the shutdown still commits what is finished
                self.fail(e)
            self._shutdown()
            code = self._report()
            if code == lifecycle.EXIT_OK:
                self.process.rest()
        finally:
            self.process.close()
            undo()
        return code

    def _report(self) -> int:
        error = self._failure
        if error is None:
            self.log.info("stopped")
            return lifecycle.EXIT_OK
        if isinstance(error, UserError) and not isinstance(error, StoreUnavailable):
            self.log.error("stopped", message=str(error))
            return lifecycle.EXIT_USER
        if isinstance(error, FailStop):
            self.log.error("stopped on purpose; a person must look", message=str(error))
            return lifecycle.EXIT_FAIL_STOP
        what = "crashed; unfinished records will be handled again"
        self.log.exception(what, error.__cause__ or error, message=str(error))
        return lifecycle.EXIT_CRASH

    def _start(self) -> PollLoop:
        self.process.open()
        startup = Startup(self.spec, self.process)
        producer = startup.connect()
        runtime = self.settings.runtime
        self._outbox = Outbox(
            producer, self.clock, self.metrics, service=self.spec.name, failed=self.fail,
            max_records=runtime.unacknowledged_records, max_bytes=runtime.unacknowledged_bytes,
        )  # fmt: skip
        counts = startup.topics(producer)
        policy = dlq.DeadLetterPolicy(runtime.dead_letters_in_a_row, runtime.dead_letter_ratio)
        self._driver = Driver(
            service=self.spec.name, raw=self.spec.raw, outbox=self._outbox, watermarks=self._watermarks,
            crashes=self._crashes,
            limit=dlq.DeadLetterLimit(policy), clock=self.clock, log=self.log, metrics=self.metrics,
            stop=self._stop, fail=self.fail,
        )  # fmt: skip
        self._workers = self._driver.workers = Workers(
            self.spec.workers, self._driver.job_done, max_jobs=self.spec.max_jobs,
            max_bytes=self.spec.max_job_bytes, discarded=self.metrics.discarded,
        )  # fmt: skip
        with self.process.unturned():
            self._driver.core = self._make_core(self._context)
        return self._open(startup, counts, self._driver, self._workers, self._outbox)

    def _open(
        self, startup: Startup, counts: dict[str, int], driver: Driver, workers: Workers, outbox: Outbox
    ) -> PollLoop:
        """Broadcast topics first, to their end; then the inputs."""
        spec, name = self.spec, self.spec.name

        def partitions(topics: tuple[Topic, ...]) -> list[TopicPartition]:
            return [TopicPartition(t.name, n) for t in topics for n in range(counts[t.name])]

        def loop(source: Source, commits: Committer | None, ownership: Ownership | None) -> PollLoop:
            return PollLoop(
                source, driver, workers, outbox, self._watermarks, ownership=ownership, commits=commits,
                runtime=self.settings.runtime, clock=self.clock, log=self.log, metrics=self.metrics, stop=self._stop,
            )  # fmt: skip

        if spec.broadcast:
            source = Source(startup.consumer(None), self.log, self.metrics)
            source.start_at(partitions(spec.broadcast), {})
            if not spec.inputs:
                driver.assigned({tp.partition for tp in partitions(spec.broadcast)})
                return loop(source, None, None)
            self._side = source
            self._read_to_end(source, driver)
            self._follower = threading.Thread(target=self._follow, args=(source, driver), name="broadcast", daemon=True)
            self._follower.start()
        consumer = startup.consumer(group_of(self.settings.run_id, name), fetch_bytes=spec.fetch_bytes)
        source = Source(
            consumer, self.log, self.metrics, strict=spec.pinned is not None,
            rewound=lambda tp, at, start: driver.rewound(tp.topic, tp.partition, at, start),
        )  # fmt: skip
        commits = Committer(
            consumer, self._watermarks, self._crashes, every_s=self.settings.runtime.commit_s,
            clock=self.clock, log=self.log, metrics=self.metrics,
        )  # fmt: skip
        if spec.pinned is not None:
            owned = partitions(spec.inputs)
            self._watermarks.open((tp.topic, tp.partition) for tp in owned)
            source.start_at(owned, spec.pinned())
            driver.assigned({tp.partition for tp in owned})
            return loop(source, commits, None)
        ownership = Ownership(
            consumer, self._watermarks, workers, outbox, clock=self.clock, log=self.log,
            revoke_s=self.settings.runtime.revoke_s, session_s=self.settings.kafka.session_timeout_ms / 1000,
            committed=commits.note,
        )  # fmt: skip
        driver.certain = lambda: ownership.certain
        names = [t.name for t in spec.inputs]
        consumer.subscribe(names, listener=ownership)
        # A member that leads the group before it knows the topics hands out nothing, and must rebalance at once.
        while not all(partitions_of(consumer, name, 5.0) for name in names):
            self.process.turn()
        return loop(source, commits, ownership)

    # --- broadcast topics beside a group ---------------------------------------------------------------------------

    def _read_to_end(self, source: Source, driver: Driver) -> None:
        while True:
            self.process.turn()
            for record in source.poll(200):
                driver.handle(record, tracked=False)
            if source.caught_up:
                return

    def _follow(self, source: Source, driver: Driver) -> None:
        try:
            while not self._stop.is_set():
                self.process.beat(_FOLLOWER)
                for record in source.poll(LONG_POLL_MS):
                    # The core may answer for what it believes to own.
                    driver.hold(lambda: self.process.beat(_FOLLOWER))
                    driver.handle(record, tracked=False)
        except Exception as e:
            if not self._stop.is_set():
                self.fail(e)

    # --- seen from outside, and the end ----------------------------------------------------------------------------

    def _measure(self) -> None:
        if self._workers and self._outbox:
            jobs, size = self._workers.load
            self.metrics.inflight_jobs.set(jobs)
            self.metrics.inflight_bytes.set(size)
            self.metrics.unacknowledged.set(self._outbox.outstanding)
        self.metrics.inflight_records.set(self._watermarks.unfinished())

    def _shutdown(self) -> None:
        """Not ready, intake stopped, drain, flush, commit, leave: each step within what is left of one budget."""
        self._stop.set()
        self.process.ending()
        crashed = self._failure is not None
        if self._loop and not crashed:
            self.log.info("draining", budget_s=self.settings.runtime.drain_s)
        deadline = Deadline(self.clock, 2.0 if crashed else self.settings.runtime.drain_s)
        own_process = threading.current_thread() is threading.main_thread()
        dog = lifecycle.watchdog(deadline.left() + 15.0, self.log) if own_process else None
        if self._loop and self._driver and not crashed:
            self._driver.drain(deadline)
        if self._workers and not self._workers.drain(deadline):
            self.log.warning("running jobs did not end within the drain budget; their inputs are handled again")
        if self._driver:
            self._driver.close()
        if self._outbox and not self._outbox.flush(deadline.left(1.0)):
            self.log.warning("not every output was acknowledged; their inputs are handled again")
        if self._loop and self._loop.commits:
            self._loop.commits.now(deadline.left(2.0))
        if self._loop and self._loop.ownership:
            self._loop.ownership.closing = True
        if self._follower:
            self._follower.join(2 * LONG_POLL_MS / 1000)
        for source in (self._loop.source if self._loop else None, self._side):
            if source is not None:
                source.close()
        if self._outbox:
            self._outbox.close(1.0)
        if dog:
            dog.cancel()


def run_service(
    spec: ServiceSpec,
    make_core: MakeCore,
    settings: RunSettings,
    process: ServiceProcess | None = None,
) -> int:
    """Run a service on the main thread until SIGTERM; returns the exit code for `sys.exit`."""
    service = Service(spec, make_core, settings, process)
    service.process.watch_signals()
    return service.run()
