"""CPU of a jail as the kernel counts it, held against what the questions may use."""

from __future__ import annotations

import os
import time

from services.runtime.jail.backend import Jail

_CPUS = os.cpu_count() or 1
_FACTOR = 2.0
_SLACK_S = 0.1
_LOOK_S = 0.02
_UNKNOWN_S = 60.0
"""Where nothing measures it, or not yet, there is nothing to look at."""


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
        self._seen = 0.0, self._since

    def patience(self) -> float:
        """Seconds for which the pending question may be waited for until it is to be asked about again.

        0: it and those before it have used too much. The most that can have been used since the last look is what all
        processors together could do, so that a quick answer costs no look at all.
        """
        allowed, now = self._allowed(self._questions + 1), time.monotonic()
        spent, at = self._seen
        if spent + (now - at) * _CPUS >= allowed:
            used = self._jail.cpu_s()
            if used is None or self._used is None:
                return _UNKNOWN_S
            spent, at = self._seen = used - self._used, now
        left = allowed - spent - (now - at) * _CPUS
        return 0.0 if spent > allowed else max(_LOOK_S, left / _CPUS)

    def _allowed(self, questions: int) -> float:
        return _FACTOR * self._each_s * questions + _SLACK_S

    def overspent(self, ended: bool) -> bool:
        """Whether the questions since the last look used too much; `ended`: the last one got no answer."""
        self._questions += 1
        allowed = self._allowed(self._questions)
        if not ended and (time.monotonic() - self._since) * _CPUS < allowed:
            return False
        before = self._used
        self._look()
        return before is not None and self._used is not None and self._used - before > allowed

    def answered(self) -> None:
        """One question of a message of several has its answer; looked at when the last of them has."""
        self._questions += 1
