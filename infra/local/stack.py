"""Which processes make the laptop stack, and with what arguments."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from infra.child import ENVIRONMENT
from infra.local.damage import require_whole
from infra.local.mirror import served
from infra.local.rundir import RunDir, free_port
from infra.local.supervisor import ProcessSpec, Supervisor
from services.runtime import scratch
from services.runtime.errors import UserError
from services.runtime.settings import Kafka, RunSettings, secret_environment

SERVICES = ("recorder", "sandbox", "verifier", "closure", "admission", "trainer", "gate", "sampler", "dispatch")
"""In the order in which they are started; dispatch last, since it asks the others for work."""
RECORDER = "recorder"
BROKER = "broker"
BOOTSTRAP = "ROLLSTREAM_KAFKA__BOOTSTRAP"


def broker_process(run: RunDir, advertise: str = "", verify: bool = False) -> ProcessSpec:
    """The embedded broker on the run's own log; keeps its port over restarts while it is free.

    `verify`: it checks every batch before it serves.
    """
    known = run.root / "port"
    try:
        preferred = int(known.read_text())
    except (OSError, ValueError):  # the first start, or a damaged file: any port will do
        preferred = 0
    port = free_port(preferred if 0 < preferred < 65536 else 0)
    known.write_text(str(port))
    ready = run.ready / "broker"
    arguments: tuple[str, ...] = ("--data", str(run.broker), "--port", str(port), "--ready-file", str(ready))
    if advertise:
        arguments += ("--advertise", advertise)
    if verify:
        arguments += ("--verify",)
    return ProcessSpec(BROKER, "infra.broker", arguments, ready, run.logs / "broker.log")


def instances(settings: RunSettings, service: str) -> list[str]:
    """Process names of a service's instances: `verifier`, `verifier-2`, …"""
    count = getattr(settings.scale, service, 1)
    return [service, *(f"{service}-{number}" for number in range(2, count + 1))]


def service_process(
    run: RunDir, name: str, bootstrap: str, secrets: Mapping[str, str], instance: str = ""
) -> ProcessSpec:
    """One service of the run; `secrets` are environment variables, `instance` its process name where there are more."""
    instance = instance or name
    ready = run.ready / f"{instance}.json"
    arguments = ("up", "--service", name, "--config", str(run.config), "--ready-file", str(ready))
    return ProcessSpec(
        instance,
        "services.cli",
        arguments,
        ready,
        run.logs / f"{instance}.log",
        environment={**ENVIRONMENT, BOOTSTRAP: bootstrap, **secrets},
        restart="until_over" if name == "dispatch" else "always",  # dispatch ends by itself when the run is finished
    )


def start_broker(supervisor: Supervisor, run: RunDir, advertise: str = "", verify: bool = False) -> str:
    """Start the embedded broker and wait until it serves; returns its bootstrap address."""
    process = supervisor.start(broker_process(run, advertise, verify))
    supervisor.wait_ready([BROKER], timeout_s=600 if verify else 60)
    ready = process.ready()
    assert ready is not None
    if advertise:
        return advertise
    return str(ready.get("address") or f"{ready['host']}:{ready['port']}")


@contextlib.contextmanager
def readable(run: RunDir) -> Iterator[str | Kafka]:
    """Where the run's topics can be read: its cluster, the live stack's broker, or one for this look alone."""
    settings = run.settings()
    if settings.kafka.bootstrap:
        yield settings.kafka
        return
    live = run.live_bootstrap()
    if live is not None:
        yield live
        return
    if run.held():
        raise UserError("this run is starting or ending just now", str(run.root), "look again in a moment")
    if not (run.broker / "meta.json").exists():
        raise UserError("this run's folder holds no log", str(run.broker), "has the run been started?")
    with served(run) as address:
        yield address


@contextlib.contextmanager
def serving(run: RunDir, settings: RunSettings, verify: bool = False) -> Iterator[Kafka]:
    """The run's cluster with every topic made, without any service: the configured one, or its own embedded broker.

    `verify`: its own broker checks every batch of the log first.
    """
    from services.runtime.topics_admin import ensure_topics

    supervisor = Supervisor()
    try:
        bootstrap = settings.kafka.bootstrap or start_broker(supervisor, run, verify=verify)
        kafka = settings.kafka.model_copy(update={"bootstrap": bootstrap})
        ensure_topics(settings.model_copy(update={"kafka": kafka}))
        yield kafka
    finally:
        supervisor.stop([[BROKER]])


class Stack:
    """The running stack of one run."""

    def __init__(self, run: RunDir, settings: RunSettings, services: Sequence[str] = SERVICES) -> None:
        self.run = run
        self.settings = settings
        self.services = tuple(name for service in services for name in instances(settings, service))
        """Process names, every instance of every service."""
        self._service = {name: service for service in services for name in instances(settings, service)}
        self.supervisor = Supervisor()
        self.advertise = ""
        """Address under which the embedded broker is to be reached, where something stands before it."""
        self.bootstrap = settings.kafka.bootstrap
        self.cluster = settings.kafka
        self.is_up = False
        """Whether this one, and no other, has said in the folder where its broker is."""

    def start(self, tick: Callable[[list[str]], None] = lambda waiting: None, timeout_s: float = 120) -> None:
        """Start the broker (unless an external one is configured), topics, then every service at once."""
        from services.runtime.topics_admin import ensure_topics

        if not self.bootstrap:
            self.bootstrap = start_broker(self.supervisor, self.run, self.advertise)
        settings = self.settings.model_copy(
            update={"kafka": self.settings.kafka.model_copy(update={"bootstrap": self.bootstrap})}
        )
        self.cluster = settings.kafka
        ensure_topics(settings)
        require_whole(self.run, self.settings, self.cluster)
        self.run.write_stack(self.bootstrap)
        self.is_up = True
        for name in self.services:
            self.supervisor.start(self.process(name))
        self.supervisor.wait_ready(self.services, timeout_s, tick)

    def process(self, name: str, service: str = "") -> ProcessSpec:
        """How an instance is started; `service` names the service of one that the settings do not count."""
        service = service or self._service[name]
        secrets = secret_environment(self.settings, service)
        return service_process(self.run, service, self.bootstrap, secrets, name)

    @property
    def finished(self) -> bool:
        """Whether dispatch says that the run has reached its end."""
        process = self.supervisor.processes.get("dispatch")
        return process is not None and process.finished

    def restarts(self) -> dict[str, int]:
        """How often each process was restarted."""
        return {name: p.restarts for name, p in self.supervisor.processes.items() if p.restarts}

    def stop_services(self) -> list[str]:
        """Drain and end the services, leaving the broker; returns the names that had to be killed.

        The recorder last, so that it keeps what the others still write.
        """
        last = [name for name in self.services if self._service[name] == RECORDER]
        return self.supervisor.stop(
            [["dispatch"], [n for n in self.services if n != "dispatch" and n not in last], last]
        )

    def close(self) -> None:
        """End everything, by force where needed."""
        self.stop_services()
        self.supervisor.stop([[BROKER]])
        self.supervisor.kill_all()
        scratch.sweep()  # what those leave that had to be killed
        if self.is_up:
            self.run.clear_stack()


def read_json(path: Path) -> dict[str, object]:
    """A small JSON file; empty when it does not exist."""
    if not path.exists():
        return {}
    loaded: dict[str, object] = json.loads(path.read_text())
    return loaded
