"""Builds legal records of one small run, for the tests of closure, admission, dispatch, gate and the ledger."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from schemas import ids
from schemas.group import GroupAdmission, GroupClosed
from schemas.policy import EvaluationResult, PolicyGate, PolicyPublished, TrainingUpdate
from schemas.record import Record
from schemas.rollout import RolloutCompleted, RolloutRequested
from schemas.topics import ALL, Topic
from schemas.verification import VerificationAlarm, VerificationVerdict
from services.runtime.core import Message, Position

RUN = "run"
TOPIC_OF: dict[type[Record], Topic] = {topic.record: topic for topic in ALL}


def request(group: int, member: int, size: int = 4, **changes: Any) -> RolloutRequested:
    gid = ids.group_id(RUN, group)
    plain = RolloutRequested(
        run_id=RUN, group_id=gid, trial_id=ids.trial_id(gid, member), member=member, group_size=size,
        task_id=f"task-{group}", family="family", fixture_digest="sha256:f", taskset_digest="sha256:t", split="train",
        task_set="train", policy_version=0, temperature=1.0, top_k=0, top_p=1.0, max_turns=3, max_tokens=100,
        wall_s=60.0, seed=group * 100 + member, selection="uniform", selection_weight=1.0, selection_inputs="{}",
        requested_ms=1000,
    )  # fmt: skip
    return replace(plain, **changes)


def verdict(group: int, member: int, word: str = "pass", **changes: Any) -> VerificationVerdict:
    gid = ids.group_id(RUN, group)
    reward = {"pass": 1.0, "fail": 0.0}.get(word)
    plain = VerificationVerdict(
        run_id=RUN, group_id=gid, trial_id=ids.trial_id(gid, member), attempt=0, task_id=f"task-{group}",
        split="train", policy_version=0, newest_version=0, verdict=word,  # type: ignore[arg-type]
        cause="ok", reward=reward, correctness=reward, format_score=None, length_score=None, evidence="E3",
        trials_run=3, trials_wanted=3, reused=False, verifier_digest="v", check_digest="c", fixture_digest="sha256:f",
        candidate_digest=None, invocations=2, policy_tokens=30, requested_ms=1000, started_ms=1100, ended_ms=1400,
        generation_ms=200, tool_wait_ms=50, verification_started_ms=1450, verification_ended_ms=1500,
    )  # fmt: skip
    return replace(plain, **changes)


def completed(group: int, member: int, **changes: Any) -> RolloutCompleted:
    gid = ids.group_id(RUN, group)
    plain = RolloutCompleted(
        run_id=RUN, group_id=gid, trial_id=ids.trial_id(gid, member), attempt=0, task_id=f"task-{group}",
        fixture_digest="sha256:f", split="train", policy_version=0, newest_version=0, stop_reason="submitted",
        infra_error=None, final_attempt=True, diff=None, diff_uri=None, diff_digest=None, invocations=2,
        policy_tokens=30, malformed_actions=0, outstanding_operations=(), outstanding_owner=None, requested_ms=1000,
        started_ms=1100, ended_ms=1400, generation_ms=200, tool_wait_ms=50,
    )  # fmt: skip
    return replace(plain, **changes)


def closed(group: int, words: tuple[str, ...] = ("pass", "fail"), **changes: Any) -> GroupClosed:
    """A closure made by closure itself from verdicts with these words."""
    from services.closure.cohort import Cohort, Rule, close

    cohort = Cohort(ids.group_id(RUN, group), group, 0)
    for member, word in enumerate(words):
        cohort.plan(request(group, member, len(words)), Position("r", 0, 0))
        if word != "missing":
            cohort.judge(verdict(group, member, word), Position("v", 0, 0))
    return replace(close(cohort, Rule(), 2000), **changes)


def admission(group: GroupClosed, version: int = 0, max_lag: int = 2) -> GroupAdmission:
    from services.admission.decide import Standing, decide

    return decide(group, Standing(version, max_lag), 3000)


def published(version: int) -> PolicyPublished:
    return PolicyPublished(RUN, version, f"runs/run/checkpoints/{version:08d}.json", "sha256:m", None, None, 1000)


def gate(version: int, decision: str = "promoted") -> PolicyGate:
    return PolicyGate(RUN, version, "uri", "sha256:m", decision, "[]", 1000)  # type: ignore[arg-type]


def update(version: int, groups: tuple[int, ...], **changes: Any) -> TrainingUpdate:
    plain = TrainingUpdate(
        run_id=RUN, update_id=f"{RUN}/update/{version}", policy_version=version, parent_version=version - 1,
        group_ids=tuple(ids.group_id(RUN, number) for number in groups), group_lags=(0,) * len(groups), clip_low=0.2,
        clip_high=0.28, reduction="constant", advantage="std", kl_estimator="none", kl_weight=0.0, entropy_weight=0.0,
        correction_cap=2.0, imitation_weight=1.0, imitation_trials=48, imitation_loss=None, learning_rate=1e-3,
        optimizer_steps=2, loss=0.0, policy_loss=0.0, kl_loss=0.0, entropy=1.0,
        ratio_p01=1.0, ratio_p50=1.0, ratio_p99=1.0, mismatch_mean=0.0, mismatch_max=0.0, clip_low_fraction=0.0,
        clip_high_fraction=0.0, cap_fraction=0.0, gradient_norm=1.0, scored_tokens=10, prompt_tokens=10, sequences=4,
        mean_reward=0.5, waited_ms=0, computed_ms=0, finished_ms=5000,
    )  # fmt: skip
    return replace(plain, **changes)


def result(version: int, task_set: str) -> EvaluationResult:
    return EvaluationResult(RUN, version, task_set, (), (), (), 0, 2, 0.5, 0.5, 0.5, None, None, None, None, 6000)


def alarm(severity: str = "stop", name: str = "soundness:known_bad:run/00000000/0.0") -> VerificationAlarm:
    return VerificationAlarm(
        run_id=RUN, alarm_id=name, kind="soundness", severity=severity,  # type: ignore[arg-type]
        task_id="task-0", check_digest="c", policy_version=None, count=1, total=1, bound=None,
        detail="a candidate of task-0 that is known to be wrong passed", raised_ms=1000,
    )  # fmt: skip


def message(record: Record, offset: int = 0, partition: int = 0, at_ms: int = 1000) -> Message:
    topic = TOPIC_OF[type(record)]
    position = Position(topic.name, partition, offset)
    return Message(position, at_ms, getattr(record, topic.key), {}, record, 100)
