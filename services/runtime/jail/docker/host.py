"""The docker backend: one fresh container per jail, closed in every way, with the kernel's evidence about it."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from services.runtime.errors import UserError
from services.runtime.jail.backend import PLAIN, Options, Runtime
from services.runtime.jail.backend import Evidence as EvidenceLevel
from services.runtime.jail.docker import config as docker_config
from services.runtime.jail.docker import image as docker_image
from services.runtime.jail.docker.events import Events
from services.runtime.jail.docker.group import Ended, Evidence, detect
from services.runtime.jail.docker.image import Image
from services.runtime.jail.docker.instance import LABEL, DockerInstance
from services.runtime.jail.docker.pump import Pump
from services.runtime.jail.instance import SLOTS
from services.runtime.jail.limits import JailFault, Limits, Usage
from services.runtime.jail.network import Proxies
from services.runtime.jail.surroundings import Surroundings
from services.runtime.settings import Isolation

_SOCKET = "unix:///var/run/docker.sock"
_CALL_S = 30.0
_REMOVE_S = 10.0
_GRACE_S = 0.05
_REPORT_S = 1.0
_SENTRY_THREADS = 128


@dataclass
class Slot:
    """One place for a jail: its user id."""

    number: int
    uid: int


class DockerJail:
    """One running container: pipes to its worker and the evidence about it. Used by one thread at a time."""

    def __init__(
        self, host: DockerHost, slot: Slot, container: str, pump: Pump, pipes: tuple[int, int, int],
        evidence: Evidence, epoch: int,
    ) -> None:  # fmt: skip
        self._host, self._slot, self._pump = host, slot, pump
        self._evidence, self._epoch = evidence, epoch
        self._condemned = False
        self.container = container
        self.requests, self.replies, self.log = pipes
        self.closed = False

    @property
    def uid(self) -> int:
        """User id inside."""
        return self._slot.uid

    def members(self) -> set[int]:
        """Process ids inside, as this machine numbers them (empty where they are not visible here)."""
        return self._evidence.members()

    def cpu_s(self) -> float | None:
        """CPU seconds used so far by everything inside; None where nothing measures it."""
        return self._evidence.cpu_s()

    def condemn(self) -> None:
        """Its slot is not used again once it is closed: something about it could not be explained."""
        self._condemned = True

    def close_requests(self) -> None:
        """No more requests: an honest worker ends."""
        if self.requests >= 0:
            os.close(self.requests)
            self.requests = -1

    def close(self) -> Usage:
        """Kill what is left, read the counters, give the slot back (later, when not clean). Never raises."""
        if self.closed:
            return Usage()
        self.closed = True
        wait_s, alive = self._evidence.host_wait_s(), self._evidence.alive()
        ended, lost = self._host.ended(self.container, self._epoch, self._ended_early())
        self.close_requests()
        for fd in (self.replies, self.log):
            if fd >= 0:
                os.close(fd)
        clean = self._host.remove(self.container)
        self._pump.join(_REMOVE_S)
        usage = replace(self._evidence.usage(alive, wait_s, ended), lost=lost)
        self._host.give_back(self._slot, self.container, self._evidence, clean, self._condemned)
        return usage

    def _ended_early(self) -> bool:
        """Whether nobody inside can answer any more although nobody told it to end."""
        poll = select.poll()
        poll.register(self.replies, 0)
        return self.requests >= 0 and bool(poll.poll(0))


class DockerHost:
    """Owner of its containers, their labels and control groups. Thread-safe; `close` ends every jail."""

    name = "docker"
    shows_files = False
    """Files go through the pipe: an engine puts none into a container with a read-only root."""
    counts_processes = True

    def __init__(self, settings: Isolation, slots: int, instance: DockerInstance | None = None) -> None:
        """Reach the engine, take an instance number, sweep leftovers, see to the image. Raises UserError."""
        if not 1 <= slots <= SLOTS:
            raise UserError(f"{slots} sandbox slots are wanted, at most {SLOTS} are possible", do="lower the setting")
        self._settings = settings
        self.url = settings.docker_url or os.environ.get("DOCKER_HOST") or _SOCKET
        self._api, self.info = _connect(self.url, settings.docker_runtime)
        self.sentry = docker_config.is_sentry(settings.docker_runtime)
        # gVisor makes its own groups and does not start below one of ours.
        self.layout = detect(self.info, local=self.url.startswith("unix://") and not self.sentry)
        self.surroundings = Surroundings()
        self.instance = instance or DockerInstance()
        self.proxies = Proxies(self.instance.file)
        self._lock = threading.Lock()
        self._imaging = threading.Lock()
        self._images: dict[Runtime, Image] = {}
        self._free = [Slot(number, self.instance.uid(number)) for number in range(slots)]
        self._left: list[tuple[Slot, str, Evidence]] = []
        self._condemned = 0
        self._events = Events(self._api, f"{LABEL}={self.instance.owner()}")
        try:
            self.swept = self.instance.sweep_engine(self._api, self.layout)
            self.image("plain")
        except BaseException as error:
            self.close()
            if isinstance(error, UserError) or not isinstance(error, Exception):
                raise
            raise UserError(f"no sandbox image: {error}", self.url, "see that the Docker Engine works") from error

    @property
    def evidence(self) -> EvidenceLevel:
        """What a run's end can be attributed by."""
        return "cgroup" if self.layout.version else "engine"

    @property
    def weaknesses(self) -> tuple[str, ...]:
        """What is merely absent here."""
        return () if self.layout.version else ("no_own_counters",)

    @property
    def label(self) -> str:
        """Names everything that belongs to this owner on its machine."""
        return self.instance.label

    @property
    def free(self) -> int:
        """How many slots have no jail."""
        with self._lock:
            return len(self._free)

    @property
    def retired(self) -> int:
        """How many slots are out of use; those whose container could not be removed come back once it is gone."""
        with self._lock:
            return self._condemned + len(self._left)

    def check(self) -> None:
        """Run the escape self-test. Raises UserError with every deviation in one message."""
        from services.runtime.jail.docker import selftest as docker_selftest

        docker_selftest.check(self)

    @property
    def staged(self) -> bool:
        """Whether containers run on the staged interpreter, not on a user's image."""
        return not self._settings.docker_image

    def image(self, runtime: Runtime) -> Image:
        """Raises UserError, JailFault."""
        with self._imaging:
            if runtime not in self._images:
                wanted = self._settings.docker_image
                if wanted and "plain" in self._images:  # one image serves every runtime
                    self._images[runtime] = self._images["plain"]
                elif wanted:
                    self._images[runtime] = docker_image.named(self._api, wanted, self._answer)
                else:
                    self._images[runtime] = docker_image.staged(self._api, runtime, closed=not self.sentry)
            return self._images[runtime]

    def _answer(self, image: Image, question: str) -> str:
        """Output of `python -c question` in a jail of that image."""
        jail = self._start(image, [image.python, "-I", "-S", "-c", question], Limits(), PLAIN)
        said, end = b"", time.monotonic() + _CALL_S
        try:
            for fd in (jail.replies, jail.log):
                while select.select([fd], [], [], max(0.0, end - time.monotonic()))[0]:
                    part = os.read(fd, 4096)
                    said += part
                    if not part or len(said) > 4096:
                        break
        finally:
            jail.close()
        return said.decode("utf-8", "replace")

    def launch(self, limits: Limits, options: Options = PLAIN) -> DockerJail:
        """Start a jail; its worker says nothing before it is asked. Raises JailFault."""
        proxy = self._proxy(options.hosts) if options.hosts else None
        if options.files:
            raise JailFault("this backend shows no files in a sandbox; send them through the pipe")
        self._bury()
        for tries in (1, 2):
            try:
                image = self.image(options.runtime)
                return self._start(image, docker_config.command(image, options), limits, options, proxy)
            except UserError as error:
                raise JailFault(str(error)) from error
            except _NoImage:
                with self._imaging:
                    self._images.clear()
                if tries == 2:
                    raise
        raise AssertionError("unreachable")

    def _proxy(self, hosts: tuple[str, ...]) -> Path:
        """Raises JailFault."""
        if not self.url.startswith("unix://"):
            raise JailFault("hosts need a Docker Engine on this machine: its containers speak to a socket here")
        if self.sentry:
            raise JailFault("gVisor lets no container speak to a socket of the machine, so it reaches no hosts")
        return self.proxies.socket(hosts)

    def _start(
        self, image: Image, argv: list[str], limits: Limits, options: Options, proxy: Path | None = None
    ) -> DockerJail:
        from docker.errors import DockerException, ImageNotFound

        with self._lock:
            if not self._free:
                raise JailFault("no free sandbox slot")
            slot = self._free.pop(0)  # the one unused for longest: a repeat after a fault gets another slot
        container, ends, evidence, sock = "", list[int](), None, None
        try:
            epoch, helpers = self._events.ensure(), _SENTRY_THREADS if self.sentry else 0
            evidence = Evidence(self.layout, f"{self.instance.label}-{slot.number}", limits, helpers)
            body = docker_config.container(
                image, argv, slot.uid, limits, options, evidence, {LABEL: self.instance.owner()},
                self._settings.docker_runtime, proxy,
            )  # fmt: skip
            container = str(self._api.create_container_from_config(body)["Id"])
            for _ in range(3):
                ends += os.pipe()
            sock = self._attach(container)
            self._api.start(container)
            evidence.started(int(self._api.inspect_container(container)["State"]["Pid"]), container)
        except (DockerException, OSError, JailFault, ValueError) as error:
            for fd in ends:
                os.close(fd)
            if sock is not None:
                sock.close()
            clean = not container or self.remove(container)
            self.give_back(slot, container, evidence, clean)
            kind = _NoImage if isinstance(error, ImageNotFound) else JailFault
            raise kind(f"a sandbox did not start: {error}") from error
        pump = Pump(sock, ends[0], ends[3], ends[5])
        pipes = (ends[1], ends[2], ends[4])
        for fd in pipes:
            os.set_blocking(fd, False)
        pump.start()
        return DockerJail(self, slot, container, pump, pipes, evidence, epoch)

    def _attach(self, container: str) -> socket.socket:
        """The engine's two-way stream of a container that has not started, so that nothing is missed."""
        given = self._api.attach_socket(container, params={"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1})
        try:
            return socket.socket(fileno=os.dup(given.fileno()))
        finally:
            given._response.close()  # its connection is not one to be used again

    def ended(self, container: str, epoch: int, early: bool) -> tuple[Ended, bool]:
        """What the engine says about a container, and whether its end (if it ended) was the engine's or a person's."""
        from docker.errors import DockerException

        nothing = Ended(running=False, oom_killed=False)
        if not self._events.lives(epoch, _GRACE_S if early else 0.0):
            return nothing, True
        try:
            state = self._api.inspect_container(container)["State"]
        except (DockerException, OSError):
            return nothing, True
        if state["Running"]:
            return Ended(running=True, oom_killed=bool(state["OOMKilled"])), False
        killed, out_of_memory = self._events.end_of(container, _REPORT_S)
        return Ended(False, bool(state["OOMKilled"]) or out_of_memory), killed

    def remove(self, container: str) -> bool:
        """Whether the container is gone."""
        from docker.errors import APIError, DockerException, NotFound

        end = time.monotonic() + _REMOVE_S
        while time.monotonic() < end:
            try:
                self._api.remove_container(container, force=True, v=True)
                return True
            except NotFound:
                return True
            except APIError:  # being removed by somebody else, or not dead yet
                time.sleep(0.05)
            except (DockerException, OSError):
                return False
        return False

    def give_back(
        self, slot: Slot, container: str, evidence: Evidence | None, clean: bool, condemned: bool = False
    ) -> None:
        """A slot is free again; one whose container or group is still there waits until they are gone."""
        clean = clean and (evidence is None or evidence.close())
        with self._lock:
            if condemned:
                self._condemned += 1
            elif clean:
                self._free.append(slot)
            elif evidence is not None:
                self._left.append((slot, container, evidence))

    def _bury(self) -> None:
        """Try again to remove what could not be removed (the engine was away)."""
        with self._lock:
            left, self._left = self._left, []
        for slot, container, evidence in left:
            self.give_back(slot, container, evidence, not container or self.remove(container))

    def close(self) -> None:
        """Remove every container and group of this owner, free the instance number."""
        from docker.errors import DockerException

        self._events.close()
        with contextlib.suppress(DockerException, OSError):
            self.instance.sweep_number(self._api, self.layout, self.instance.number)
        self._api.close()
        self.proxies.close()
        self.instance.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _NoImage(JailFault):
    """The image was removed since it was last seen."""


def _connect(url: str, runtime: str) -> tuple[Any, Mapping[str, Any]]:
    """(client, the engine's /info). Raises UserError."""
    from docker import APIClient
    from docker.errors import DockerException

    if not url.startswith(("unix://", "tcp://")) or os.environ.get("DOCKER_TLS_VERIFY"):
        raise UserError(
            "the Docker Engine must be at a unix:// or plain tcp:// address",
            f"isolation.docker_url = {url}",
            "forward the engine's socket (ssh -L) and name the local one",
        )
    try:
        api = APIClient(base_url=url, version="auto", timeout=_CALL_S)
        # No proxy stands before an engine; looking for one reads and writes the environment, which threads share.
        api.trust_env = False
        info = api.info()
    except (DockerException, OSError) as error:
        raise UserError(
            f"the Docker Engine does not answer: {error}",
            url,
            "start it (systemctl start docker), join its group, or set isolation.docker_url; "
            "or set isolation.backend = bubblewrap",
        ) from error
    if runtime and runtime not in info.get("Runtimes", {}):
        raise UserError(
            f"the Docker Engine has no runtime {runtime!r}", url, f"use one of {', '.join(info.get('Runtimes', {}))}"
        )
    return api, info
