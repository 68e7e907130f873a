"""Runs the sandbox service: self-test first, then the core on the shared loop."""

from __future__ import annotations

import hashlib

from schemas.topics import SANDBOX_COMMAND
from services.runtime.context import ServiceContext, ServiceSpec
from services.runtime.errors import UserError
from services.runtime.jail.announce import announce, crowded
from services.runtime.jail.backend import open_backend
from services.runtime.jail.instance import SLOTS
from services.runtime.jail.limits import MIB, Limits
from services.runtime.loop import run_service
from services.runtime.process import ServiceProcess
from services.runtime.settings import RunSettings, Sandbox
from services.runtime.store import CorruptObject, MissingObject, ObjectStore
from services.sandbox import metrics
from services.sandbox.core import SandboxCore
from services.sandbox.pool import Pool
from services.sandbox.workspace import Known, Operator
from services.tasks.fixture import Fixture
from services.tasks.taskset import BadDocument, TaskSet, load_public


class PublicTasks:
    """Public task documents from the object store, by the SHA-256 of their bytes; each is read once."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._loaded: dict[str, TaskSet] = {}

    def load(self, digest: str) -> TaskSet:
        """Raises MissingObject, CorruptObject or BadDocument."""
        if digest not in self._loaded:
            raw = self._store.get(f"tasks/{digest}/public.json")
            found = hashlib.sha256(raw).hexdigest()
            if found != digest:
                raise BadDocument(f"the public document has digest {found}, not {digest}")
            self._loaded[digest] = load_public(raw)
        return self._loaded[digest]

    def fixture(self, digest: str, task_id: str) -> Fixture:
        """Raises KeyError when task set or task are unknown."""
        try:
            return self.load(digest).get(task_id)
        except (MissingObject, CorruptObject, BadDocument, ValueError) as error:
            raise KeyError(str(error)) from error


def limits(settings: Sandbox) -> Limits:
    """Jail bounds of the settings. RLIMIT_CPU is the last resort behind the timer of each run."""
    cpu_s, printed = max(60, int(settings.wall_s)), 1024 * settings.print_kb
    return Limits(settings.memory_mb * MIB, settings.processes, cpu_s=cpu_s, log_bytes=printed)


def main(settings: RunSettings, process: ServiceProcess | None = None) -> int:
    """Run until SIGTERM. Raises UserError when no sandbox can be made or one of the escape probes deviates."""
    wanted = settings.sandbox
    # A slot beside each live jail for every worker: one may be closing while the next starts.
    slots = min(SLOTS, wanted.workspaces + 2 * wanted.workers + wanted.pool)
    host = open_backend(settings.isolation, slots)
    pool = Pool(host, limits(wanted), wanted.pool)
    try:
        host.check()
        warning = crowded(host, limits(wanted), wanted.workers, slots, "sandbox.workers")

        def make_core(context: ServiceContext) -> SandboxCore:
            tasks = PublicTasks(context.store)
            if settings.taskset_digest:
                try:
                    tasks.load(settings.taskset_digest)
                except (MissingObject, CorruptObject, BadDocument) as error:
                    what = f"the run's task set cannot be read: {error}"
                    raise UserError(what, f"tasks/{settings.taskset_digest}", "prepare the run again") from error
            metrics.register(pool, context.registry)
            announce(host, context.log, context.registry, warning)
            operator = Operator(pool, Known())
            generation = f"{host.label}@{context.clock.now_ms()}"
            return SandboxCore(wanted, tasks.fixture, operator, generation, context.clock.now_ms)

        spec = ServiceSpec("sandbox", inputs=(SANDBOX_COMMAND,), workers=wanted.workers, max_jobs=256)
        return run_service(spec, make_core, settings, process)
    finally:
        pool.close()
        host.close()
