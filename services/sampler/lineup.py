"""The order in which waiting trials begin: those that were under way first, then as they were asked for."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from services.sampler.facts import Trial
from services.sampler.policies import Policies


class Lineup:
    """Waiting trials by the policy version that they were dispatched under; ids of trials that are gone are skipped."""

    def __init__(self) -> None:
        self._resumed: deque[str] = deque()
        self._fresh: dict[int, deque[str]] = {}

    def add(self, trial: Trial) -> None:
        """A trial whose request is known waits for its turn."""
        if trial.begun or trial.requested is None:
            self._resumed.append(trial.id)
        else:
            self._fresh.setdefault(trial.requested.policy_version, deque()).append(trial.id)

    def take(self, policies: Policies, find: Callable[[str], Trial | None]) -> Trial | None:
        """The next trial that may begin under the weights in the engine; None when none may."""
        queues = [self._resumed] if policies.may_sample else []
        queues += [self._fresh[version] for version in sorted(self._fresh) if policies.ready_for(version)]
        for queue in queues:
            while queue:
                trial = find(queue.popleft())
                if trial is not None:
                    return trial
        self._fresh = {version: queue for version, queue in self._fresh.items() if queue}
        return None
