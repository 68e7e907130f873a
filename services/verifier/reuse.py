"""Verdicts of identical candidates: which is reused, which is judged afresh all the same, and which never again."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass

from services.runtime.settings import Verifier
from services.verifier.candidate import Identity
from services.verifier.judge import Judgement

MAX_REMEMBERED = 20_000
SHARED = 5
"""How many parts of a candidate's key identical candidates share."""


@dataclass(frozen=True)
class Earlier:
    """A pass or a fail that stands, and the trial attempt that it was given to."""

    judgement: Judgement
    identity: Identity
    name: str


class Reuse:
    """What this process has judged since its start, newest last. One lucky verdict is not handed on for ever: a share
    of what could be reused is judged afresh, and a verdict that another one contradicts is withdrawn."""

    def __init__(self, settings: Verifier) -> None:
        self._share = settings.rejudge_share
        self._known: OrderedDict[tuple[str, ...], Earlier] = OrderedDict()
        self._withdrawn: OrderedDict[tuple[str, ...], None] = OrderedDict()

    def get(self, shared: tuple[str, ...]) -> Earlier | None:
        """The verdict that an identical candidate may get."""
        known = self._known.get(shared)
        if known is not None:
            self._known.move_to_end(shared)
        return known

    def afresh(self, shared: tuple[str, ...], name: str) -> bool:
        """Whether this trial attempt is judged by itself although there is such a verdict, or one is under way. Its id
        alone decides, so that a repeat after a crash decides as before."""
        drawn = int.from_bytes(hashlib.sha256(f"judged afresh {name}".encode()).digest()[:8], "big")
        return shared in self._withdrawn or drawn < self._share * 2**64

    def put(self, shared: tuple[str, ...], made: Earlier) -> Earlier | None:
        """Take in a verdict; the one there was before. Where the two differ, none of them is reused from now on."""
        earlier = self._known.get(shared)
        if earlier is not None and earlier.judgement.verdict != made.judgement.verdict:
            self._withdrawn[shared] = None
        elif earlier is None:
            self._known[shared] = made
        for held in (self._known, self._withdrawn):
            while len(held) > MAX_REMEMBERED:
                held.popitem(last=False)
        return earlier
