"""Warm jails for exploration: kept ready, taken by a workspace, and kept again only after a reset that was proved.

Nothing here ever serves an assessment: the verifier launches a fresh jail for every check run and throws it away.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping
from threading import Lock

from services.runtime.jail.backend import Backend, Options, own_processes
from services.runtime.jail.limits import JailFault, Limits
from services.runtime.jail.session import Server
from services.sandbox.reset import Warm

BOOT_S = 15.0
ENDS = ("fresh", "reused", "reset", "broken", "unexplained", "surplus", "spent")
"""What is counted: launched, taken from the pool, reset between two runs or for the next workspace, thrown away because
of what ran in it, thrown away because a reset did not hold (its slot is retired), ended although clean, ended after use
because it cannot be reset or a fresh one comes sooner."""
SHOWN_FROM = 8
"""Trees of at least this many files are shown to a jail; smaller ones travel with each run."""
RESET_UP_TO = 500
"""Files of a shown tree: proving more takes longer than a fresh jail (`tests/bench/sandbox_bench.py`)."""
_LAUNCH_TRIES = 2


class Pool:
    """Thread-safe; a `Warm` belongs to one workspace at a time."""

    def __init__(self, host: Backend, limits: Limits, size: int) -> None:
        """`size`: jails that wait at most; 0: every workspace gets a fresh one and none is kept."""
        self._host = host
        self._limits = limits
        self._size = size
        self._lock = Lock()
        self._ready: OrderedDict[int, Warm] = OrderedDict()  # the one that came last is taken first
        self._starting = 0
        self._closed = False
        self.counts: Counter[str] = Counter()

    @property
    def ready(self) -> int:
        """How many wait."""
        return len(self._ready)

    @property
    def short(self) -> bool:
        """Whether fewer wait than could."""
        return not self._closed and len(self._ready) < self._size

    @property
    def retired(self) -> int:
        """Slots out of use."""
        return self._host.retired

    @property
    def network(self) -> dict[str, int]:
        """What the proxies of jails with hosts did: connections passed, requests refused."""
        proxies = self._host.proxies
        return {"passed": proxies.passed, "refused": proxies.refused}

    def take(self, files: Mapping[str, str], digest: str, hosts: tuple[str, ...] = ()) -> Warm:
        """A clean jail that shows `files` (known by `digest`), or none of them where they are few or cannot be shown.

        It reaches exactly `hosts`: one that serves other hosts, or none, is never given out instead.
        Raises JailFault when none can be started, after one more try on another slot.
        """
        shown = self._host.shows_files and len(files) >= SHOWN_FROM
        key = digest if shown else ""
        with self._lock:
            for name, warm in reversed(self._ready.items()):
                if (warm.key, warm.hosts) == (key, hosts):
                    del self._ready[name]
                    self.counts["reused"] += 1
                    return warm
        for tries in range(_LAUNCH_TRIES):
            try:
                return self._fresh(files if shown else {}, key, hosts)
            except JailFault:
                if tries == _LAUNCH_TRIES - 1 and not self._yield_one():
                    raise
        return self._fresh(files if shown else {}, key, hosts)

    def clean(self, warm: Warm) -> bool:
        """Whether its next run starts from a proved clean state; if not, close it and take another.

        Where no jail of this host can be looked into, a workspace goes on with its own as it is.
        """
        if warm.runs == 0 or not warm.ours:
            return True
        return self._reset(warm)

    def give(self, warm: Warm) -> None:
        """A workspace lets go of it: kept when it is unused or a reset holds, and there is room; else ended."""
        if warm.runs > 0 and not self._reset(warm):
            warm.close()
            return
        with self._lock:
            surplus = None
            if self._closed or self._size == 0:
                surplus = warm
            else:
                self._ready[id(warm)] = warm
                if len(self._ready) > self._size:
                    _, surplus = self._ready.popitem(last=False)
        if surplus is not None:
            self.counts["surplus"] += 1
            surplus.close()

    def fill(self) -> bool:
        """Start one plain jail if fewer than `size` wait; whether there may be more to start. Faults are left alone."""
        with self._lock:
            if self._closed or len(self._ready) + self._starting >= self._size:
                return False
            self._starting += 1
        try:
            warm = self._fresh({}, "")
        except JailFault:
            return False
        finally:
            with self._lock:
                self._starting -= 1
        self.give(warm)
        return True

    def close(self) -> None:
        """End the jails that wait."""
        with self._lock:
            self._closed = True
            left, self._ready = list(self._ready.values()), OrderedDict()
        for warm in left:
            warm.close()

    def _fresh(self, files: Mapping[str, str], key: str, hosts: tuple[str, ...] = ()) -> Warm:
        processes = own_processes(self._host, self._limits)
        jail = self._host.launch(self._limits, Options(files=files, files_digest=key, hosts=hosts))
        try:
            server = Server(jail, self._limits, BOOT_S, processes, proxy=bool(hosts))
            warm = Warm(server, files, key, len(files) <= RESET_UP_TO, hosts)
        except JailFault:
            jail.close()
            raise
        self.counts["fresh"] += 1
        return warm

    def _yield_one(self) -> bool:
        """End a waiting jail, so that its slot can serve another tree."""
        with self._lock:
            if not self._ready:
                return False
            _, warm = self._ready.popitem(last=False)
        self.counts["surplus"] += 1
        warm.close()
        return True

    def _reset(self, warm: Warm) -> bool:
        if not warm.resettable:
            self.counts["spent"] += 1
            return False
        outcome = warm.reset()
        self.counts["reset" if outcome == "clean" else outcome] += 1
        return outcome == "clean"
