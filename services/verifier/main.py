"""Runs the verifier: self-test first, then the core on the shared loop; only it opens hidden documents."""

from __future__ import annotations

import gc
import hashlib
import sys
import tempfile
from functools import cached_property
from pathlib import Path

from schemas import codec
from schemas.topics import ROLLOUT_COMPLETED, VERIFICATION_ALARM, VERIFICATION_CANARY, VERIFICATION_VERDICT
from services.patch.admission import Admitted
from services.runtime.context import ServiceContext, ServiceSpec
from services.runtime.errors import UserError
from services.runtime.jail.announce import announce, crowded
from services.runtime.jail.backend import Backend, open_backend
from services.runtime.jail.limits import MIB, Limits
from services.runtime.loop import run_service
from services.runtime.process import ServiceProcess
from services.runtime.settings import RunSettings, Verifier
from services.runtime.store import MissingObject, ObjectStore, get_bounded
from services.tasks import taskset, trust
from services.tasks.fixture import CheckSet, Fixture, canonical
from services.verifier import metrics, trial
from services.verifier.attribution import Boots, Facts
from services.verifier.candidate import CertificateOf
from services.verifier.core import VerifierCore
from services.verifier.hidden import run as hidden
from services.verifier.retries import CheckRunner
from services.verifier.reward import PARTIAL_CASES
from services.verifier.suspects import Suspects

_PROCESS_CPU_S = 3
"""RLIMIT_CPU of a check run: the last resort for loops in C, which the per-call timer of the worker cannot stop."""

_FETCH_AGAIN_S = 1.0


class StoredTasks:
    """Both halves of the run's task set, each from its store, by the public document's SHA-256."""

    def __init__(self, store: ObjectStore, hidden_store: ObjectStore, taskset_digest: str) -> None:
        self._stores = {"public": store, "hidden": hidden_store}
        self._digest = taskset_digest

    @cached_property
    def _public(self) -> taskset.TaskSet:
        return taskset.load_public(self._document("public"))

    @cached_property
    def _hidden(self) -> taskset.CheckSets:
        return taskset.load_hidden(self._document("hidden"))

    def _document(self, half: str) -> bytes:
        key = f"tasks/{self._digest}/{half}.json"
        try:
            return self._stores[half].get(key)
        except MissingObject as error:
            if half == "hidden":
                trust.require_trusted(self._stores[half], self._digest)
            raise UserError(
                f"the run's task set has no {half} half in its store", str(error), "prepare the run again"
            ) from error

    def load(self) -> None:
        """Read both documents now, and see that everything in them can be judged here. Raises UserError."""
        try:
            found = hashlib.sha256(self._document("public")).hexdigest()
            if found != self._digest:
                raise taskset.BadDocument(f"the public document has digest {found}, not {self._digest}")
            if len(self._hidden) < len(self._public.fixtures):
                raise taskset.BadDocument("the hidden document does not hold a check set for every fixture")
        except taskset.BadDocument as error:
            raise UserError(str(error), f"tasks/{self._digest}", "prepare the run again") from error
        hidden.require(self._hidden)

    def fixture(self, task_id: str) -> Fixture:
        return self._public.get(task_id)

    def check(self, task_id: str) -> CheckSet:
        return self._hidden.get(task_id)


# What decides a verdict beside verifier and jail, and settings that decide none.
_TASK_FILES = ("answers.py", "api.py", "comparators.py", "fixture.py", "objects.py", "oracle.py", "values.py")
_NO_VERDICT = frozenset(
    {
        "workers",
        "retry_backoff_s",
        "canary_share",
        "audit_share",
        "rejudge_share",
        "unknown_alarm_rate",
        "exploit_alarm_rate",
        "alarm_count",
    }
)


def verifier_digest(settings: Verifier) -> str:
    """Digest of everything of ours that can change a verdict: code of verifier, jail and values, and the settings."""
    services = Path(__file__).parent.parent
    folders = ("verifier", "patch", "runtime/jail")
    files = [path for folder in folders for path in (services / folder).rglob("*.py")]
    files += [services / "tasks" / name for name in _TASK_FILES]
    chosen = settings.model_dump(mode="json", exclude=set(_NO_VERDICT))
    seen = hashlib.sha256(f"{sys.version}\n".encode() + canonical(chosen))
    for path in sorted(files):
        seen.update(path.relative_to(services).as_posix().encode() + b"\0" + path.read_bytes())
    return "sha256:" + seen.hexdigest()


def bounds(settings: Verifier) -> trial.Bounds:
    """Jail bounds of the settings."""
    printed = 1024 * settings.print_kb
    limits = Limits(settings.memory_mb * MIB, settings.processes, cpu_s=_PROCESS_CPU_S, log_bytes=printed)
    every_case = settings.objective == PARTIAL_CASES
    return trial.Bounds(limits, settings.call_cpu_s, settings.wall_s, all_cases=every_case)


def certificates(store: ObjectStore, taskset_digest: str) -> CertificateOf:
    """The certificates of the run's task set; none where none are in the store. Raises UserError."""
    from services.tasks.certificates import load

    key = f"tasks/{taskset_digest}/certificates.json"
    try:
        return load(store.get(key)).get
    except MissingObject:
        return lambda digest: None
    except taskset.BadDocument as error:
        raise UserError(str(error), key, "certify the task set again: rollstream tasks certify") from error


def check_runner(host: Backend, settings: Verifier) -> CheckRunner:
    """Check runs on this host, each with what booting usually takes there."""
    run_bounds, boots = bounds(settings), Boots()

    def check_run(candidate: Admitted, check: CheckSet, seed: int) -> Facts:
        return boots.seen(trial.run(host, candidate.tree, check, seed, run_bounds))

    return check_run


def suspects_of(settings: RunSettings, process: ServiceProcess | None, host: Backend) -> Suspects:
    """Beside the count of crashes; else under the name that this process alone holds here (a pod's /tmp outlives its
    containers)."""
    crashes = process.crash_file if process is not None else None
    path = crashes or Path(tempfile.gettempdir()) / f"{host.label}.crash.json"
    return Suspects(path.with_suffix(".checks.json"), settings.run_id, settings.runtime.death_tries)


def main(settings: RunSettings, process: ServiceProcess | None = None) -> int:
    """Run until SIGTERM. Raises UserError when no sandbox can be made or one of the escape probes deviates."""
    workers = settings.verifier.workers
    host = open_backend(settings.isolation, workers * 2)
    try:
        host.check()
        warning = crowded(host, bounds(settings.verifier).limits, workers, workers * 2, "verifier.workers")
        suspects = suspects_of(settings, process, host)
        run_checks = suspects.guard(check_runner(host, settings.verifier))

        def make_core(context: ServiceContext) -> VerifierCore:
            tasks = StoredTasks(context.store, context.hidden_store(), settings.taskset_digest)
            tasks.load()

            def fetch(uri: str) -> str:
                try:
                    return get_bounded(context.store, uri, codec.MAX_BYTES, uri.rpartition("/")[2]).decode("utf-8")
                except UserError as error:
                    context.log.warning("a candidate could not be fetched; trying again", uri=uri, why=str(error))
                    context.stop.wait(_FETCH_AGAIN_S)  # the core asks again at once
                    raise

            core = VerifierCore(
                settings.verifier, tasks, run_checks, fetch, verifier_digest(settings.verifier), context.clock.now_ms,
                run_id=settings.run_id, certificate_of=certificates(context.store, settings.taskset_digest),
            )  # fmt: skip
            metrics.register(core, context.registry)
            announce(host, context.log, context.registry, warning)
            # Task set and code live as long as the process; looked at by each collection they would cost a check run
            # a third of what our side of it computes.
            gc.freeze()
            return core

        spec = ServiceSpec(
            "verifier",
            inputs=(ROLLOUT_COMPLETED, VERIFICATION_VERDICT),
            broadcast=(VERIFICATION_CANARY, VERIFICATION_ALARM),
            workers=workers,
        )
        code = run_service(spec, make_core, settings, process)
        if code == 0:
            suspects.close()
        return code
    finally:
        host.close()
