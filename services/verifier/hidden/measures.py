"""Facts of a trial of hidden tests: what the kernel and the conversation's own record showed, whichever way it ran."""

from __future__ import annotations

from services.runtime.jail.backend import Backend, Options
from services.runtime.jail.limits import Usage, host_oom_kills, host_pressure
from services.runtime.jail.session import Transcript
from services.verifier.attribution import Facts
from services.verifier.trial import Bounds

IMPORT_CPU_S = 0.5
SHARED = 6.0
"""Wall clock of a call over the CPU limit of its process: a busy machine stretches CPU time by who else wants it."""


class Measures:
    """Made before the jail starts, so that the host's counters can be compared."""

    def __init__(self, host: Backend, bounds: Bounds, options: Options) -> None:
        self._host = host
        self._bounds = bounds
        self._options = options
        self._kills = host_oom_kills()

    def facts(self, transcript: Transcript, usage: Usage) -> Facts:
        """Everything but what the tests came to."""
        kills = host_oom_kills()
        return Facts(
            booted=transcript.booted,
            ready=transcript.ready,
            import_error=transcript.failure[0] if transcript.failure else None,
            ending=transcript.ending,
            wall_s=transcript.wall_s,
            usage=usage,
            memory_limit=self._bounds.limits.memory_bytes,
            cpu_limit=self._bounds.limits.cpu_s,
            pressure=host_pressure(),
            host_oom=None not in (kills, self._kills) and kills != self._kills,
            hash_seed=self._options.hash_seed,
            backend=self._host.name,
            boot_s=transcript.boot_s,
        )
