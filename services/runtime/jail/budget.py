"""CPU of a jail as the kernel counts it, held against what the questions may use."""

from __future__ import annotations

import os
import time

from services.runtime.jail.backend import Jail

_CPUS = os.cpu_count() or 1
_FACTOR = 2.0
_SLACK_S = 0.1


class Budget:
    """The worker's own timer is in the candidate's hands (it can be put off, and sees no children); this is not.

    Generous, because the two are measured differently, and looked at only when time enough has passed to overspend.
    """

    def __init__(self, jail: Jail, cpu_s: float) -> None:
        self._jail = jail
        self.renew(cpu_s)

    def renew(self, cpu_s: float) -> None:
        """From now on each question may use this much."""
        self._each_s = cpu_s
        self._look()

    def _look(self) -> None:
        self._since = time.monotonic()
        self._used = self._jail.cpu_s()
        self._questions = 0

    def overspent(self, ended: bool) -> bool:
        """Whether the questions since the last look used too much; `ended`: the last one got no answer."""
        self._questions += 1
        allowed = _FACTOR * self._each_s * self._questions + _SLACK_S
        if not ended and (time.monotonic() - self._since) * _CPUS < allowed:
            return False
        before = self._used
        self._look()
        return before is not None and self._used is not None and self._used - before > allowed

    def answered(self) -> None:
        """One question of a message of several has its answer; looked at when the last of them has."""
        self._questions += 1
