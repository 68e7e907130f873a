"""`rollstream trial`: reads one trial from the topics and prints it as a conversation."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TextIO

from services.runtime.screen import say_json, styled

if TYPE_CHECKING:
    from schemas.record import Record
    from services.monitor.conversation import Trial
    from services.monitor.texts import Texts
    from services.runtime.cluster import Cluster
    from services.runtime.store import ObjectStore

_BY_GROUP = (
    "rollout.requested",
    "rollout.invocation",
    "sandbox.command",
    "sandbox.result",
    "rollout.completed",
    "verification.trial",
    "verification.verdict",
    "group.closed",
    "group.admission",
)
_BY_RUN = ("training.update",)


def show_trial(
    source: Cluster | Iterable[Record],
    trial_id: str,
    store: ObjectStore | None = None,
    base_manifest: str = "",
    as_json: bool = False,
    full: bool = False,
    out: TextIO | None = None,
) -> None:
    """Print one trial. `source`: a broker's address, a cluster's settings, or records. `base_manifest`: the version-0
    checkpoint's key.

    Text is decoded with the tokenizer of that checkpoint in `store`; without it, ids are shown and a note says why.
    Raises UserError for a bad id (with the grammar) and an unknown trial (with near ones).
    """
    from services.monitor.conversation import parse_trial_id, unknown_trial
    from services.monitor.conversation_text import render
    from services.monitor.texts import find_texts

    ref = parse_trial_id(trial_id)
    trial, groups = _find(source, ref.group_id, trial_id)
    if trial is None:
        raise unknown_trial(ref, groups)
    texts = find_texts(store, base_manifest, _tokenizer_digest(trial))
    stream = out or sys.stdout
    if as_json:
        say_json(trial_json(trial, texts), to=stream)
    else:
        styled(render(trial, texts, full), stream)


def _find(source: Cluster | Iterable[Record], group_id: str, trial_id: str) -> tuple[Trial | None, set[str]]:
    """The trial, or None and every group id that there is. On a broker its partition first, then every partition:
    the second look tells a trial that does not exist from one that was produced with another partitioner."""
    from services.monitor.conversation import gather
    from services.runtime.settings import Kafka

    if not isinstance(source, str | Kafka):
        records = list(source)
        return gather(records, trial_id), {g for r in records if (g := getattr(r, "group_id", None))}
    groups: set[str] = set()
    for narrow in (True, False):
        trial = gather(_read(source, group_id, groups, narrow), trial_id)
        if trial is not None:
            break
    return trial, groups


def _read(cluster: Cluster, group_id: str, groups: set[str], narrow: bool) -> Iterator[Record]:
    """Records of one group and the updates; notes every group id that passes. Undecodable records are skipped."""
    from services.monitor.source import read
    from services.monitor.start import Start

    key = group_id.encode()
    updates = {f"{name}.v1" for name in _BY_RUN}

    def keep(raw: Any) -> bool:
        if raw.topic in updates:
            return True
        groups.add((raw.key or b"").decode(errors="replace"))
        return bool(raw.key == key)

    topics = [*_BY_GROUP, *_BY_RUN]
    for seen in read(cluster, topics, Start("earliest"), keep=keep, key=key if narrow else None):
        if seen.record is not None:
            yield seen.record


def _tokenizer_digest(trial: Trial) -> str | None:
    return next((t.invocation.tokenizer_digest for a in trial.attempts for t in a.turns), None)


def trial_json(trial: Trial, texts: Texts) -> dict[str, Any]:
    """The trial as one JSON value: every record whole, beside the text of its ids where a tokenizer was found."""
    from services.monitor.tap import record_json

    def one(record: Record | None) -> dict[str, Any] | None:
        return None if record is None else record_json(record)

    def turn(t: Any) -> dict[str, Any]:
        return {
            "invocation": one(t.invocation),
            "appended_text": texts.decode(t.invocation.appended_ids),
            "sampled_text": texts.decode(t.invocation.sampled_ids),
            "operations": [{"command": one(o.command), "result": one(o.result)} for o in t.operations],
        }

    attempts = [
        {
            "attempt": a.number,
            "turns": [turn(t) for t in a.turns],
            "loose_operations": [{"command": one(o.command), "result": one(o.result)} for o in a.loose_operations],
            "completed": one(a.completed),
            "verification": [one(c) for c in a.checks],
            "verdicts": [one(v) for v in a.verdicts],
        }
        for a in trial.attempts
    ]
    return {
        "trial_id": trial.trial_id,
        "fate": {"name": trial.fate.name, "reason": trial.fate.reason, "sentence": trial.fate.sentence},
        "request": one(trial.request),
        "attempts": attempts,
        "group": one(trial.group),
        "admissions": [one(a) for a in trial.admissions],
        "updates": [one(u) for u in trial.updates],
        "duplicates": trial.duplicates,
        "notes": [texts.note] if texts.note else [],
    }
