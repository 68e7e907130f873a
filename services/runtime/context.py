"""What a service declares about itself and what its core is given to work with."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from prometheus_client import CollectorRegistry

from schemas.topics import Topic
from services.runtime.clock import Clock
from services.runtime.core import Core, Effects, RawCore
from services.runtime.errors import UserError
from services.runtime.logs import Log
from services.runtime.settings import RunSettings, Store

if TYPE_CHECKING:
    from services.runtime.store import ObjectStore
    from services.runtime.store_patient import Wait


@dataclass(frozen=True)
class ServiceSpec:
    """What a service reads and how.

    `inputs` are consumed by the group `{run_id}.{name}` and committed by watermark; one member gets the same partition
    numbers of all of them. `broadcast` topics are read by every instance from the beginning and never committed; they
    are read to their end before the first input is handled. `pinned` replaces the group: every partition of `inputs` is
    read from the offsets it returns ((topic, partition) -> offset; the beginning where missing), which live with the
    service's own state; offsets are still committed so that lag dashboards work. `raw`: the core is a RawCore; such a
    service writes no topic, and on SIGTERM it still handles what stands in its inputs, within the drain budget.
    `fetch_bytes`: how much a fetch waits for, a second at most, where nobody waits for the result.
    """

    name: str
    inputs: tuple[Topic, ...] = ()
    broadcast: tuple[Topic, ...] = ()
    pinned: Callable[[], Mapping[tuple[str, int], int]] | None = None
    workers: int = 0
    max_jobs: int = 64
    max_job_bytes: int = 64 * 1024 * 1024
    raw: bool = False
    fetch_bytes: int = 1

    def __post_init__(self) -> None:
        if not self.inputs and not self.broadcast:
            raise ValueError(f"{self.name}: a service reads at least one topic")


class Emitter(Protocol):
    """Runs a function under the core's lock and applies its effects."""

    def __call__(self, make: Callable[[], Effects]) -> bool: ...


class ServiceContext:
    """Handed to `make_core`: settings, store, clock, log, and the thread-safe ways back into the loop."""

    def __init__(
        self,
        settings: RunSettings,
        *,
        service: str,
        clock: Clock,
        log: Log,
        registry: CollectorRegistry,
        stop: threading.Event,
        emit: Emitter,
        fail: Callable[[BaseException], None],
        store_down: Wait,
    ) -> None:
        self.settings = settings
        self._service = service
        self.clock = clock
        self.log = log
        self.registry = registry
        """For metrics of the service's own; they appear under /metrics. Label values must be bounded."""
        self.stop = stop
        """Set when the service is asked to end; threads of the service's own watch it in every wait."""
        self._emit = emit
        self._fail = fail
        self._ready = True
        self._store_down = store_down
        self._store: ObjectStore | None = None

    @property
    def store(self) -> ObjectStore:
        """The run's object store, opened at first use. Raises UserError when none is configured.

        While the service starts (in `make_core`), a store that is down is waited for. Later its calls raise
        StoreUnavailable: a job of theirs is tried again by the core that wants it.
        """
        if self._store is None:
            self._store = self._opened(self.settings.store)
        return self._store

    def hidden_store(self) -> ObjectStore:
        """The store of the hidden checks, as patient as `store`; only services that are given its login may ask."""
        from services.runtime.store import hidden_section

        section = hidden_section(self.settings)
        return self.store if section is self.settings.store else self._opened(section)

    def _opened(self, section: Store) -> ObjectStore:
        from services.runtime.store import open_store
        from services.runtime.store_patient import PatientStore

        if not section.url:
            raise UserError("this service needs an object store", "store.url", "set it to file:///… or s3://…")
        return PatientStore(lambda: open_store(section, self._service), self._store_down)

    def emit(self, make: Callable[[], Effects]) -> bool:
        """Run `make` under the core's lock, from any thread but a core method's, and apply its effects.

        Waits while too many outputs are unacknowledged. Returns False, without running `make`, once the service has
        stopped: its inputs are unfinished then and will be handled again. An exception of `make` stops the service.
        """
        return self._emit(make)

    def fail(self, error: BaseException) -> None:
        """Stop the service with this error (exit code 1), from any thread."""
        self._fail(error)

    def set_ready(self, ready: bool) -> None:
        """Hold readiness back (False) while, say, a model loads; the loop's own conditions come on top."""
        self._ready = ready

    @property
    def gate_open(self) -> bool:
        return self._ready


MakeCore = Callable[[ServiceContext], Core | RawCore]


class CoreLock:
    """The one lock under which a core runs; a core that would wait for itself gets an error instead."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counting = threading.Lock()
        self._waiting = 0
        self._owner = 0

    def __enter__(self) -> None:
        me = threading.get_ident()
        if self._owner == me:
            raise RuntimeError("emit was called inside a core method: return Effects instead")
        if not self._lock.acquire(blocking=False):
            with self._counting:
                self._waiting += 1
            self._lock.acquire()
            with self._counting:
                self._waiting -= 1
        self._owner = me

    def __exit__(self, *_: Any) -> None:
        self._owner = 0
        self._lock.release()

    def yield_if_wanted(self) -> None:
        """Let a waiting thread in: Python locks are unfair, and a replay would starve the workers' results."""
        if self._waiting:
            time.sleep(0.0001)
