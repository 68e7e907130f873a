"""Shares of verdicts per policy version that should stay small: a rise with training wants an explanation."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

REMEMBERED = 64


@dataclass
class Share:
    """Verdicts of one version of which something is counted, and how many there are."""

    version: int
    count: int = 0
    total: int = 0

    @property
    def rate(self) -> float:
        return self.count / self.total if self.total else 0.0


class Shares:
    """Counts of the latest versions since this process started, over the partitions that it owns."""

    def __init__(self, alarm_rate: float, alarm_count: int) -> None:
        self._alarm_rate = alarm_rate
        self._alarm_count = alarm_count
        self._shares: OrderedDict[int, Share] = OrderedDict()

    def note(self, version: int, counts: bool) -> Share | None:
        """Take in a final verdict; the version's share when that is above the alarm rate over enough verdicts.

        A trial that never reached the policy (version below 0) belongs to no version.
        """
        if version < 0:
            return None
        share = self._shares.setdefault(version, Share(version))
        share.total += 1
        share.count += counts
        while len(self._shares) > REMEMBERED:
            del self._shares[min(self._shares)]
        return share if share.total >= self._alarm_count and share.rate > self._alarm_rate else None

    def latest(self, rank: int) -> Share | None:
        """The share of the newest version (rank 0), of the one before it (1), ...; None when there is none."""
        versions = sorted(self._shares, reverse=True)
        return self._shares[versions[rank]] if rank < len(versions) else None
