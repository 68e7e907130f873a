"""From recorded model calls to sequences to score: shared prompts once, equal sequences once, sampled ids only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class ScoredCall:
    """One recorded model call: `prefix` (n,) as the engine was given it, `sampled` (m,), `logprobs` (m,) in nats."""

    prefix: Ids
    sampled: Ids
    logprobs: Floats


@dataclass(frozen=True)
class TrainMember:
    """One trial of a group with its group coefficient and its reward."""

    trial_id: str
    calls: tuple[ScoredCall, ...]
    coefficient: float
    reward: float


@dataclass(frozen=True)
class TrainGroup:
    """A closed, admitted group. `lag` is its largest member lag at consumption."""

    group_id: str
    members: tuple[TrainMember, ...]
    lag: int = 0
    temperature: float = 1.0


@dataclass(frozen=True)
class Piece:
    """A run of calls that extend each other: `ids` holds everything, `scored` (k,) the places of the sampled ids."""

    ids: Ids
    scored: npt.NDArray[np.int64]
    logprobs: Floats
    first_prefix: int


def pieces_of(member: TrainMember) -> list[Piece]:
    """The member's calls as few sequences: one, unless a compaction broke the chain."""
    found: list[Piece] = []
    chain: list[ScoredCall] = []
    end = np.empty(0, np.int32)
    for call in member.calls:
        if chain and not (len(call.prefix) >= len(end) and np.array_equal(call.prefix[: len(end)], end)):
            found.append(_piece(chain))
            chain = []
        chain.append(call)
        end = np.concatenate([call.prefix, call.sampled])
    if chain:
        found.append(_piece(chain))
    return found


def _piece(chain: Sequence[ScoredCall]) -> Piece:
    last = chain[-1]
    ids = np.concatenate([last.prefix, last.sampled])
    places = [np.arange(len(call.prefix), len(call.prefix) + len(call.sampled)) for call in chain]
    logprobs = np.concatenate([call.logprobs for call in chain]).astype(np.float32)
    return Piece(ids, np.concatenate(places).astype(np.int64), logprobs, len(chain[0].prefix))


@dataclass(frozen=True)
class Packed:
    """Groups ready for one forward pass of shared prompts.

    `prompts[i]` and `suffixes[j]` are ids; suffix j continues prompt `owner[j]`. Suffixes are unique; `wanted` numbers
    the positions (over all suffix tokens in order) whose logits are needed, `targets` the ids that they predict.
    Per **scored token** (n,), members repeated: `source` its place among `targets`, `behaviour` its recorded
    log-probability, `coefficients`, `rewards`; `lengths` (members,) counts the scored tokens of each trial.
    """

    prompts: list[Ids]
    suffixes: list[Ids]
    owner: list[int]
    wanted: npt.NDArray[np.int64]
    targets: npt.NDArray[np.int64]
    source: npt.NDArray[np.int64]
    behaviour: Floats
    coefficients: Floats
    rewards: Floats
    lengths: npt.NDArray[np.int64]
    temperatures: Floats

    @property
    def computed_tokens(self) -> int:
        """Tokens that a forward pass runs over."""
        return sum(map(len, self.prompts)) + sum(map(len, self.suffixes))


class _Builder:
    def __init__(self) -> None:
        self.prompts: list[Ids] = []
        self.suffixes: list[Ids] = []
        self.owner: list[int] = []
        self.wanted: list[npt.NDArray[np.int64]] = []
        self.targets: list[npt.NDArray[np.int64]] = []
        self.temperatures: list[Floats] = []
        self.source: list[npt.NDArray[np.int64]] = []
        self.behaviour: list[Floats] = []
        self.coefficients: list[Floats] = []
        self.rewards: list[Floats] = []
        self.lengths: list[int] = []
        self._tokens = 0
        self._targets = 0
        self._known: dict[tuple[int, bytes, bytes], int] = {}

    def add(self, group: TrainGroup) -> None:
        pieces = [pieces_of(member) for member in group.members]
        every = [piece for own in pieces for piece in own]
        if not every:
            return
        shared = _common(every)
        self.prompts.append(every[0].ids[:shared])
        for member, own in zip(group.members, pieces, strict=True):
            count = 0
            for piece in own:
                start = self._suffix(piece, shared, group.temperature)
                n = len(piece.scored)
                self.source.append(np.arange(start, start + n))
                self.behaviour.append(piece.logprobs)
                self.coefficients.append(np.full(n, member.coefficient, np.float32))
                self.rewards.append(np.full(n, member.reward, np.float32))
                count += n
            self.lengths.append(count)

    def _suffix(self, piece: Piece, shared: int, temperature: float) -> int:
        """Number of the first target of this sequence, which is added unless the same one is there already."""
        ids = piece.ids[shared:]
        prompt = len(self.prompts) - 1
        key = (prompt, ids.tobytes(), piece.scored.tobytes())
        if key not in self._known:
            self._known[key] = self._targets
            self.suffixes.append(ids)
            self.owner.append(prompt)
            self.wanted.append(piece.scored - shared - 1 + self._tokens)
            self.targets.append(piece.ids[piece.scored].astype(np.int64))
            self.temperatures.append(np.full(len(piece.scored), temperature, np.float32))
            self._tokens += len(ids)
            self._targets += len(piece.scored)
        return self._known[key]


def _common(pieces: Sequence[Piece]) -> int:
    """Length of the shared start, at least one token short of every first prefix: that token predicts the first id."""
    limit = min(piece.first_prefix for piece in pieces) - 1
    first = pieces[0].ids[:limit]
    for piece in pieces[1:]:
        differing = np.flatnonzero(piece.ids[: len(first)] != first)
        if len(differing):
            first = first[: differing[0]]
    return len(first)


def pack(groups: Sequence[TrainGroup]) -> Packed:
    """All sequences of some groups; a member without calls has no scored tokens but counts as a sequence."""
    builder = _Builder()
    for group in groups:
        builder.add(group)

    def whole(parts: list[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
        return np.concatenate(parts).astype(np.int64) if parts else np.empty(0, np.int64)

    def reals(parts: list[Floats]) -> Floats:
        return np.concatenate(parts).astype(np.float32) if parts else np.empty(0, np.float32)

    return Packed(
        builder.prompts,
        builder.suffixes,
        builder.owner,
        whole(builder.wanted),
        whole(builder.targets),
        whole(builder.source),
        reals(builder.behaviour),
        reals(builder.coefficients),
        reals(builder.rewards),
        np.asarray(builder.lengths, np.int64),
        reals(builder.temperatures),
    )
