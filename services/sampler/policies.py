"""Which policy version to sample from: the newest that the gate lets collect data, once it lies in the engine."""

from __future__ import annotations

from schemas.policy import PolicyGate

USABLE = ("promoted", "released")


class Policies:
    """The gate's decisions and what the engine holds. Times are monotonic seconds."""

    def __init__(self, retry_s: float = 2.0) -> None:
        self._decisions: dict[int, PolicyGate] = {}
        self._retry_s = retry_s
        self._retry_at = 0.0
        self.loading: int | None = None
        self.loaded: int | None = None

    def note(self, decision: PolicyGate) -> None:
        """The gate spoke; its last word about a version counts."""
        self._decisions[decision.policy_version] = decision

    def knows(self, version: int) -> bool:
        """Whether the gate has decided on this version or on a newer one."""
        return any(decided >= version for decided in self._decisions)

    @property
    def target(self) -> PolicyGate | None:
        """The newest version that may collect data."""
        usable = [version for version, d in self._decisions.items() if d.decision in USABLE]
        return self._decisions[max(usable)] if usable else None

    def next_load(self, now_s: float) -> PolicyGate | None:
        """The version to fetch now, if any; then `loading` is set until `finish` or `failed`."""
        target = self.target
        if target is None or self.loading is not None or target.policy_version == self.loaded or now_s < self._retry_at:
            return None
        self.loading = target.policy_version
        return target

    def finish(self, version: int) -> None:
        """The engine serves this version from now on."""
        self.loading, self.loaded = None, version

    def failed(self, now_s: float) -> None:
        """The version could not be fetched or loaded; it is tried again after a while."""
        self.loading, self._retry_at = None, now_s + self._retry_s

    @property
    def may_sample(self) -> bool:
        """Whether the weights in the engine may collect data now: a halted version is left at once."""
        if self.loaded is None:
            return False
        decision = self._decisions.get(self.loaded)
        return decision is not None and decision.decision in USABLE

    def ready_for(self, version: int) -> bool:
        """Whether a trial that was dispatched under `version` may begin.

        It waits for that version, since older weights would only make it stale; a version that was halted meanwhile is
        no longer waited for.
        """
        if not self.may_sample or self.loaded is None:
            return False
        if self.loaded >= version:
            return True
        decision = self._decisions.get(version)
        target = self.target
        dropped = decision is not None and decision.decision not in USABLE
        return dropped and target is not None and target.policy_version == self.loaded
