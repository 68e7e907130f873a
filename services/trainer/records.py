"""The trainer's records and its small documents in the store: plan, update, publication, exclusion."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from schemas.bounds import INT32, YEAR_2200_MS
from schemas.group import ExclusionReason, GroupAdmission
from schemas.policy import PolicyPublished, TrainingUpdate
from services.runtime.checkpoints import CheckpointMeta, Manifest
from services.runtime.core import Effects
from services.runtime.settings import RunSettings
from services.runtime.store import MissingObject, ObjectStore


def plan_key(run_id: str, version: int) -> str:
    """Where the group ids of an update under way are stored."""
    return f"runs/{run_id}/plans/{version:08d}.json"


def stored_plan(store: ObjectStore, run_id: str, version: int) -> tuple[str, ...]:
    """Groups of the update to `version` that was begun and did not end; empty when none was."""
    try:
        return tuple(json.loads(store.get(plan_key(run_id, version)))["group_ids"])
    except MissingObject:
        return ()


def offsets_of(manifest: Manifest) -> dict[tuple[str, int], int]:
    """Where a trainer at this version reads on: (topic, partition) -> offset."""
    return {(t, int(p)): offset for t, parts in manifest.meta.consumed.items() for p, offset in parts.items()}


def update_fields(meta: CheckpointMeta, lags: Sequence[int], settings: RunSettings) -> dict[str, Any]:
    """The part of a `training.update` that is known before the update: its groups and every choice of the objective."""
    chosen = settings.trainer
    return {
        "run_id": meta.run_id,
        "update_id": meta.update_id,
        "policy_version": meta.version,
        "parent_version": meta.parent,
        "group_ids": list(meta.group_ids),
        "group_lags": list(lags),
        "clip_low": chosen.clip_low,
        "clip_high": chosen.clip_high,
        "reduction": chosen.reduction,
        "advantage": settings.closure.advantage,
        "kl_estimator": chosen.kl_estimator,
        "kl_weight": chosen.kl_weight,
        "entropy_weight": chosen.entropy_weight,
        "correction_cap": chosen.correction_cap,
        "imitation_weight": chosen.imitation_weight,
        "imitation_trials": chosen.imitation_trials,
    }


def training_update(stored: Mapping[str, Any]) -> TrainingUpdate:
    """The record that a manifest keeps as plain fields. Fields that this code does not know are left out."""
    values: dict[str, Any] = {f.name: stored.get(f.name) for f in fields(TrainingUpdate)}
    for name in ("group_ids", "group_lags"):
        values[name] = tuple(values[name])
    return TrainingUpdate(**values)


def policy_published(manifest: Manifest) -> PolicyPublished:
    """The record that announces a version: its key and digest are all that it takes to load it."""
    meta = manifest.meta
    return PolicyPublished(
        run_id=meta.run_id,
        policy_version=meta.version,
        manifest_uri=manifest.key,
        manifest_digest=manifest.digest,
        parent_version=meta.parent,
        update_id=meta.update_id,
        published_ms=meta.published_ms,
    )


def exclusion(admission: GroupAdmission, reason: ExclusionReason, version: int, now_ms: int) -> GroupAdmission:
    """The second record of an admitted group that cannot be trained on at trainer `version`; lags as of now."""
    moved = version - admission.trainer_version
    return replace(
        admission,
        stage="trainer",
        decision="excluded",
        reason=reason,
        trainer_version=version,
        member_lags=tuple(min(INT32, max(0, lag + moved)) if lag >= 0 else lag for lag in admission.member_lags),
        age_queue_ms=min(YEAR_2200_MS, admission.age_queue_ms + max(0, now_ms - admission.decided_ms)),
        decided_ms=now_ms,
    )


def joined(*parts: Effects) -> Effects:
    """One set of effects out of several, in order."""
    whole = Effects()
    for part in parts:
        whole += part
    return whole
