"""The self-test where jails have no control groups: the kernel's bounds of a process hold, and the watch sees the sum.

A bound that does not hold is a deviation, and the service does not start. A watch that does not see what it must is
merely absent: its numbers are then not used, and records say so.
"""

from __future__ import annotations

import resource

from services.runtime.jail.launcher import JailHost
from services.runtime.jail.limits import MIB, Limits
from services.runtime.jail.selftest import answer_text, ask

_SMALL = Limits(memory_bytes=48 * MIB, processes=8)
_KINDS = (resource.RLIMIT_AS, resource.RLIMIT_NPROC, resource.RLIMIT_CPU, resource.RLIMIT_FSIZE)


def deviations(host: JailHost) -> list[str]:
    """In words. Tells the host to distrust its samples where the watch is blind."""
    found = [*_bounds(host), *_memory(host), *_processes(host)]
    if host.evidence == "sampled" and not _watch_sees(host):
        host.distrust_samples()
    return found


def _bounds(host: JailHost) -> list[str]:
    seen = answer_text(ask(host, _SMALL, "hard_limits", (_KINDS,))[0])
    wanted = (_SMALL.memory_bytes, _SMALL.own_processes, _SMALL.cpu_s, _SMALL.file_bytes)
    expected = f'"{",".join(map(str, wanted))}"'
    return [] if seen == expected else [f"bounds of a process: {seen}, expected {expected}"]


def _memory(host: JailHost) -> list[str]:
    transcript, usage = ask(host, _SMALL, "bomb", (192 * MIB,))
    if usage.oom_kills or not (transcript.answers and transcript.answers[0].kind == "r"):
        return []
    return ["memory limit: a 192 MiB value could be made in a 48 MiB jail"]


def _processes(host: JailHost) -> list[str]:
    """Bounded in each jail, and for each jail alone: kernels before 5.14 count for all of a user's together."""
    found = []
    transcript, usage = ask(host, _SMALL, "forks", (64,))
    made = answer_text(transcript)
    if not usage.pids_denied and made not in {f'{{"i":"{count}"}}' for count in range(_SMALL.own_processes)}:
        found.append(f"process limit: {made} of 64 forks in a jail of {_SMALL.processes} processes")
    made = answer_text(ask(host, Limits(processes=1), "forks", (1,))[0])
    if made != '{"i":"1"}':
        found.append(f"processes of one jail alone: {made} of 1 fork was possible beside others of this user")
    return found


def _watch_sees(host: JailHost) -> bool:
    _, held = ask(host, _SMALL, "hold", (3, 20 * MIB, 2.0))
    _, forked = ask(host, _SMALL, "hold", (_SMALL.processes + 2, 1, 1.0))
    return bool(held.oom_kills) and bool(forked.pids_denied)
