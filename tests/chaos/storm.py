"""Works a schedule off on a live stack: strikes, heals, times recoveries, and notices a run that stands still."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from infra.local.supervisor import StackFailed
from tests.chaos.explained import Injured
from tests.chaos.faults import CLOCKS, ENDING, EVERYTHING, LINK_FAULTS, STOPPED, WIDE, Fault
from tests.chaos.hand import Hand
from tests.chaos.observer import Observer

STALL_S = 30.0
"""Seconds in which nothing is broken and all serve, while groups wait and no trial gets any further: a stall."""
CALM_S = 120.0
"""The same where somebody does not serve though nothing is broken."""
_PROCESS = (*ENDING, *STOPPED, *CLOCKS, *WIDE)
_STEP_S = 0.05
_LOOK_S = 0.3


@dataclass
class _Recovering:
    """A fault that was taken back, and whether those whom it hit serve again."""

    fault: Fault
    since: float
    ill: set[str]
    """Those of them that have not been seen to serve since."""


@dataclass
class Storm:
    """`run` drives the supervisor; what it found stands in the fields. Times are monotonic seconds."""

    hand: Hand
    observer: Observer
    say: Callable[[str], None] = lambda line: None
    injured: list[Injured] = field(default_factory=list)
    recoveries: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    problems: list[str] = field(default_factory=list)
    _recovering: list[_Recovering] = field(default_factory=list)
    _healthy_s: float = 0.0
    _calm_s: float = 0.0
    _looked: float = 0.0
    _stirred: float = 0.0

    def run(self, faults: Sequence[Fault]) -> None:
        """Strike and heal by the schedule. Raises StackFailed when a service refuses to go on."""
        began = time.monotonic()
        waiting, active = list(faults), list[tuple[float, float, Fault]]()
        while waiting or active:
            now = time.monotonic() - began
            for struck, due, fault in [entry for entry in active if entry[1] <= now]:
                self._heal(fault, began + struck)
                active.remove((struck, due, fault))
            fault = next((f for f in waiting if f.at_s <= now and self._may(f, [a for _, _, a in active])), None)
            if fault is not None:
                waiting.remove(fault)
                self.hand.strike(fault)
                self.say(f"{now:7.1f} s{str(fault)[9:]}")
                active.append((now, now + fault.for_s, fault))
            self.turn(quiet=not active)

    def _may(self, fault: Fault, active: Sequence[Fault]) -> bool:
        """Whether it may begin now: nothing that it clashes with lasts, no broker of it is still being started."""
        return not any(_clash(fault, other) for other in active) and not self.hand.reviving(fault)

    def turn(self, quiet: bool = True) -> None:
        """One step of everything that goes on by itself; `quiet`: nothing is broken at the moment."""
        self.hand.stack.supervisor.check()
        self.hand.turn()
        now = time.monotonic()
        if now - self._looked >= _LOOK_S:
            self._look(now, quiet)
        time.sleep(_STEP_S)

    def settle(self, until: Callable[[], bool], timeout_s: float) -> bool:
        """Go on without new faults until this holds; False when it does not in time."""
        deadline = time.monotonic() + timeout_s
        while not until():
            if time.monotonic() > deadline:
                return False
            self.turn()
        return True

    def _heal(self, fault: Fault, struck: float) -> None:
        self.hand.heal(fault)
        now = time.monotonic()
        self.injured.append(Injured(fault, struck, now))
        # What is ended is back by itself; for the rest, recovery begins when it is taken back.
        since = struck if fault.kind in (*ENDING, "roll", "rebalance", "whole") else now
        self._recovering.append(_Recovering(fault, since, set(self._hit(fault))))

    def _look(self, now: float, quiet: bool) -> None:
        before, self._looked = self._looked or now, now
        for one in list(self._recovering):
            if one.fault.kind != "roll" or not self.hand.rolling:
                one.ill -= {name for name in one.ill if self.hand.well(name)}
            if not one.ill and self.observer.moved > one.since:
                self.recoveries[one.fault.kind].append(now - one.since)
                self._recovering.remove(one)
        if self.observer.stirred != self._stirred or not self.observer.waiting:
            self._stirred, self._healthy_s, self._calm_s = self.observer.stirred, 0.0, 0.0
        elif quiet:
            self._calm_s += now - before
            if now - self._stirred > 5.0 and all(map(self.hand.well, self.hand.targets.processes)):
                self._healthy_s += now - before
        if self._healthy_s > STALL_S or self._calm_s > CALM_S:
            sick = [name for name in self.hand.targets.processes if not self.hand.well(name)]
            self.problems.append(
                f"the run stood still though nothing was broken: {len(self.observer.waiting)} groups wait, no record "
                f"of any trial came for {now - self._stirred:.0f} s; not serving: {', '.join(sick) or 'nobody'}"
            )
            self.say(self.problems[-1])
            self._healthy_s = self._calm_s = 0.0

    def _hit(self, fault: Fault) -> Sequence[str]:
        """The processes that have to serve again after it."""
        if fault.kind in LINK_FAULTS:
            return ()
        if fault.target == EVERYTHING:
            return self.hand.targets.processes
        if fault.kind == "roll":
            return [n for n in self.hand.stack.services if n.rpartition("-")[0] == fault.target or n == fault.target]
        return fault.hit


def _clash(one: Fault, other: Fault) -> bool:
    """Whether two faults may not last at once: one of a sort on one target, one of a broker, nothing beside `whole`."""
    if (one.kind in LINK_FAULTS) != (other.kind in LINK_FAULTS):
        return False
    if "whole" in (one.kind, other.kind):
        return one.kind in _PROCESS and other.kind in _PROCESS
    if (one.kind in CLOCKS) != (other.kind in CLOCKS):
        return False
    if EVERYTHING in (one.target, other.target):
        return True
    brokers = [any(name == "broker" or name.startswith("kafka-") for name in fault.hit) for fault in (one, other)]
    return bool(set(one.hit) & set(other.hit)) or (all(brokers) and one.kind not in LINK_FAULTS)


__all__ = ["STALL_S", "StackFailed", "Storm"]
