"""Credit: how many groups may be under way, so that rollouts arrive fresh instead of being rejected."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Credit:
    """The bound of a run. With `max_lag` 0 the same formula makes it synchronous."""

    max_lag: int
    batch_groups: int
    updates: int

    def limit(self, promoted: int) -> int:
        """Groups that may have been started and not refunded: (max_lag + version + 1) * batch, where version is the
        newest one that may collect data; never more than all updates can consume.

        A group within this limit is consumed by update number <= max_lag + version, so its lag is within the bound. The
        promoted version counts, not the trainer's: a version that waits for its gate collects nothing.
        """
        return min(self.max_lag + promoted + 1, self.updates) * self.batch_groups

    def free(self, *, promoted: int, trained_versions: int, open_groups: int) -> int:
        """Groups that may be started now.

        `open_groups` are started, neither refunded nor trained on; `trained_versions` updates consumed a batch each.
        The difference form needs no count since the run began, so it stays right when old records have expired. Zero
        when the trainer is already further ahead of the promoted version than the bound: all would arrive stale.
        """
        if trained_versions - promoted > self.max_lag:
            return 0
        return max(0, self.limit(promoted) - trained_versions * self.batch_groups - open_groups)
