"""What every kind of jail offers: one interface, so that judge and workspaces do not know which kind they run on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, Protocol, Self

from services.runtime.jail.limits import Limits, Usage
from services.runtime.jail.network import Proxies
from services.runtime.jail.surroundings import Surroundings
from services.runtime.settings import Isolation

Evidence = Literal["cgroup", "engine", "sampled", "rlimit"]
"""What the end of a run can be attributed by: the kernel's counters of each jail (full); what a container engine says;
the kernel's bounds of each process and a watch that samples their sum from outside; those bounds alone."""

Runtime = Literal["plain", "pytest", "network"]
"""What there is inside: the standard library, in which no socket can be made; and pytest; and sockets."""


@dataclass(frozen=True)
class Options:
    """What differs from one jail to the next on one host. The defaults are an assessment of a small function.

    `hash_seed`: PYTHONHASHSEED inside (0..2**32-1); None: random. `files`: a fixture's tree (relative path -> text)
    that is there, read-only below and writable above, before anything runs; `files_digest` names its content, so that a
    backend may lay it out once and show it many times. `hosts`: "name:port" that a proxy outside lets through (see
    `network.py`); they imply the network runtime, and ValueError is raised for them beside pytest, which has no way.
    """

    hash_seed: int | None = None
    runtime: Runtime = "plain"
    files: Mapping[str, str] = field(default_factory=dict)
    files_digest: str = ""
    hosts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.hosts and self.runtime == "pytest":
            raise ValueError("a sandbox with pytest reaches no hosts")
        if self.hosts:
            object.__setattr__(self, "runtime", "network")


PLAIN = Options()


class Jail(Protocol):
    """One running jail: pipes to its worker and the kernel's evidence about it. Used by one thread at a time.

    `requests`, `replies`, `log` are file descriptors (non-blocking); -1 once closed.
    """

    requests: int
    replies: int
    log: int

    def cpu_s(self) -> float | None:
        """CPU seconds used so far by everything inside; None where nothing measures it."""
        ...

    def close_requests(self) -> None:
        """No more requests: an honest worker ends."""
        ...

    def close(self) -> Usage:
        """Kill what is left, read the counters, give the slot back (retired when not clean). Never raises."""
        ...


class Backend(Protocol):
    """Owner of everything that its jails need. Thread-safe; `close` ends every jail and leaves nothing behind."""

    name: str
    proxies: Proxies

    @property
    def label(self) -> str:
        """Names everything that belongs to this owner on its machine."""
        ...

    @property
    def counts_processes(self) -> bool:
        """Whether the kernel bounds and counts processes per jail; where it does not, the worker bounds itself."""
        ...

    @property
    def evidence(self) -> Evidence:
        """What a run's end can be attributed by. Sure only after `check`."""
        ...

    @property
    def weaknesses(self) -> tuple[str, ...]:
        """What this backend has elsewhere and is merely absent here, one stable word each."""
        ...

    @property
    def surroundings(self) -> Surroundings:
        """The memory wall around this service."""
        ...

    @property
    def shows_files(self) -> bool:
        """Whether `Options.files` can be had here; where not, `launch` refuses them and files go through the pipe."""
        ...

    @property
    def free(self) -> int:
        """How many slots have no jail."""
        ...

    @property
    def retired(self) -> int:
        """How many slots could not be cleaned and are out of use."""
        ...

    def launch(self, limits: Limits, options: Options = PLAIN) -> Jail:
        """Start a jail; its worker says nothing before it is asked. Raises JailFault."""
        ...

    def check(self) -> None:
        """Run the escape self-test. Raises UserError with every deviation in one message."""
        ...

    def close(self) -> None:
        """End every jail and remove what belongs to this owner."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def own_processes(backend: Backend, limits: Limits) -> int:
    """To how many processes a worker is to bound itself; 0: the kernel bounds and counts them for each jail."""
    return 0 if backend.counts_processes else limits.own_processes


def open_backend(settings: Isolation, slots: int) -> Backend:
    """The configured backend, not yet self-tested (`check`). Raises UserError when it cannot be had."""
    return _BACKENDS[settings.backend](settings, slots)


def _bubblewrap(settings: Isolation, slots: int) -> Backend:
    from services.runtime.jail.launcher import JailHost

    del settings
    return JailHost(slots)


def _docker(settings: Isolation, slots: int) -> Backend:
    from services.runtime.jail.docker.host import DockerHost

    return DockerHost(settings, slots)


_BACKENDS: dict[str, Callable[[Isolation, int], Backend]] = {"bubblewrap": _bubblewrap, "docker": _docker}
