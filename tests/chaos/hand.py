"""The hand that breaks a live stack, and mends it again."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from infra.local import stack as local
from infra.local.stack import Stack
from tests.apache import Cluster
from tests.chaos.clocks import HOUR_S, Clocks
from tests.chaos.faults import CLOCKS, ENDING, EVERYTHING, LINK_FAULTS, STOPPED, STORE, Fault, Targets, service_of
from tests.chaos.toxiproxy import Toxiproxy
from tests.chaos.world import S3

_LEAVE_S = 20.0
_WITHIN_S = 0.5
"""Between the end of a member and the kill of a broker: its group is being formed anew."""
_SIGNALS = {"kill": signal.SIGKILL, "term": signal.SIGTERM}
_TOXICS = {
    "latency": {"latency": 250, "jitter": 200},
    "bandwidth": {"rate": 200},
    "limit_data": {"bytes": 20_000},
    "slicer": {"average_size": 200, "size_variation": 100, "delay": 500},
}


@dataclass
class _Roll:
    """A rolling restart: who is still to be ended, and who was ended last, with its old process id."""

    left: list[str]
    last: tuple[str, int | None] | None = None


class Hand:
    """`strike`, `heal` and `turn` are called from the one thread that also drives the supervisor."""

    def __init__(
        self, stack: Stack, proxy: Toxiproxy, links: dict[str, list[str]], s3: S3 | None, nodes: Cluster | None,
        clocks: Clocks,
    ) -> None:  # fmt: skip
        self.stack, self.proxy, self.links, self.s3, self.nodes, self.clocks = stack, proxy, links, s3, nodes, clocks
        self.injected: Counter[str] = Counter()
        self.hits: Counter[str] = Counter()
        self._rolls: list[_Roll] = []
        self._reviving: dict[str, float] = {}

    @property
    def targets(self) -> Targets:
        """What there is to hit."""
        brokers = [f"kafka-{n}" for n in (1, 2, 3)] if self.nodes else [local.BROKER]
        # The Java brokers and the S3 server keep the machine's clock.
        clocked = [*self.stack.services, *([] if self.nodes else brokers)] if self.clocks.there else []
        return Targets(list(self.stack.services), brokers, sorted(self.links), self.s3 is not None, clocked)

    def _pid(self, target: str) -> int | None:
        if target == STORE and self.s3:
            return self.s3.pid
        if target.startswith("kafka-") and self.nodes:
            return int((self.nodes.folder / f"node{target[6:]}.pid").read_text())
        process = self.stack.supervisor.processes.get(target)
        return None if process is None else process.pid

    def _signal(self, target: str, number: int) -> None:
        pid = self._pid(target)
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    # -- breaking --------------------------------------------------------------------------------------------------

    def strike(self, fault: Fault) -> None:
        """Do it."""
        if fault.kind in (*ENDING, *STOPPED):
            self._signal(fault.target, _SIGNALS.get(fault.kind, signal.SIGSTOP))
        elif fault.kind in CLOCKS:
            self._set_clocks(fault, HOUR_S if fault.kind == "clock_ahead" else -HOUR_S)
        elif fault.kind == "roll":
            self._rolls.append(_Roll([one for one in self.stack.services if service_of(one) == fault.target]))
        elif fault.kind == "rebalance":
            member, broker = fault.hit
            # A member that says goodbye starts the rebalance at once; one that is killed, when it comes back.
            self._signal(member, signal.SIGTERM if fault.number % 2 else signal.SIGKILL)
            time.sleep(_WITHIN_S)
            self._signal(broker, signal.SIGKILL)
        elif fault.kind == "outage":
            self._signal(STORE, signal.SIGKILL)
        elif fault.kind == "whole":
            for name in self.targets.processes:
                self._signal(name, signal.SIGKILL)
        else:
            for link in self.links[fault.target]:
                self._break_link(fault.kind, link)
        self.injected[fault.kind] += 1
        link_fault = " link" if fault.kind in LINK_FAULTS else ""
        for name in fault.hit:
            self.hits[name + link_fault] += 1

    def _set_clocks(self, fault: Fault, seconds: int) -> None:
        self.clocks.set(self.targets.clocked if fault.target == EVERYTHING else [fault.target], seconds)

    def _break_link(self, kind: str, link: str) -> None:
        if kind == "cut":
            self.proxy.cut(link)
        elif kind == "reset":
            self.proxy.poison(link, "reset_peer", "downstream", timeout=0)
        else:
            for stream in ("upstream", "downstream"):
                self.proxy.poison(link, kind, stream, **_TOXICS[kind])

    def turn(self) -> None:
        """Go on with what takes several steps: a rolling restart ends the next instance when the last one is back."""
        self._revive()
        for roll in list(self._rolls):
            if roll.last is not None:
                name, pid = roll.last
                if self._pid(name) in (None, pid) or not self.well(name):
                    continue
            if not roll.left:
                self._rolls.remove(roll)
                continue
            roll.last = (roll.left[0], self._pid(roll.left[0]))
            self._signal(roll.left.pop(0), signal.SIGTERM)

    def reviving(self, fault: Fault) -> bool:
        """Whether a broker is on its way back while the fault would end one: two of three are needed."""
        if fault.kind in (*STOPPED, *CLOCKS, *LINK_FAULTS, "roll", "outage"):
            return fault.target in self._reviving
        return bool(self._reviving) and (fault.kind == "whole" or any(n.startswith("kafka-") for n in fault.hit))

    @property
    def rolling(self) -> bool:
        """Whether a rolling restart is under way."""
        return bool(self._rolls)

    # -- mending ---------------------------------------------------------------------------------------------------

    def heal(self, fault: Fault) -> None:
        """Take it back: wake what sleeps, start what the supervisor does not restart, mend the link."""
        if fault.kind in LINK_FAULTS:
            for link in self.links[fault.target]:
                self.proxy.heal(link)
        elif fault.kind in STOPPED:
            self._signal(fault.target, signal.SIGCONT)
        elif fault.kind in CLOCKS:
            self._set_clocks(fault, 0)
        else:
            gone = self.targets.processes if fault.target == EVERYTHING else fault.hit
            if STORE in gone and self.s3:
                self.s3.stop()
                self.s3.start()
            if self.nodes:
                self._reviving |= {name: time.monotonic() + _LEAVE_S for name in gone if name.startswith("kafka-")}

    def _revive(self) -> None:
        """Start nodes again whose old process is gone; one that takes too long to say goodbye is helped."""
        for name, deadline in list(self._reviving.items()):
            if Path(f"/proc/{self._pid(name)}").exists():
                if time.monotonic() > deadline:
                    self._signal(name, signal.SIGKILL)
                continue
            assert self.nodes is not None
            self.nodes.revive(int(name[6:]))
            del self._reviving[name]

    def wake_all(self) -> None:
        """Whatever went wrong: nothing stays stopped, and every clock is right."""
        for name in self.targets.processes:
            self._signal(name, signal.SIGCONT)
        self.clocks.set(self.targets.clocked, 0)

    # -- looking ---------------------------------------------------------------------------------------------------

    def well(self, target: str) -> bool:
        """Whether a process serves again; what has no sign of its own counts when its port answers."""
        if target in self._reviving:
            return False
        if target == STORE or target.startswith("kafka-"):
            return self._pid(target) is not None and Path(f"/proc/{self._pid(target)}").exists()
        process = self.stack.supervisor.processes[target]
        found = process.ready()
        if found is None:
            return process.finished
        port = found.get("health_port")
        return port is None or _says_ready(int(port))


def _says_ready(port: int) -> bool:
    import urllib.error
    import urllib.request

    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz/ready", timeout=0.5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
