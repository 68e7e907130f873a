"""A small run as its real records: every topic, several groups, evaluations before and after; nothing is random."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from schemas import ids
from schemas.group import GroupAdmission, GroupClosed
from schemas.policy import EvaluationResult, PolicyGate, PolicyPublished, TrainingUpdate
from schemas.record import Record
from schemas.rollout import Invocation, RolloutCompleted, RolloutRequested
from schemas.sandbox import SandboxCommand, SandboxResult
from schemas.topics import ALL, Topic
from schemas.verification import VerificationTrial, VerificationVerdict

TOPIC_OF: dict[str, Topic] = {topic.record.TYPE.name: topic for topic in ALL}
START_MS = 1_790_000_000_000
DIGEST = "5f" * 32


@dataclass
class Run:
    """Writes the records of a run in the order in which they would arrive."""

    run_id: str = "demo"
    group_size: int = 4
    groups_per_update: int = 6
    updates: int = 8
    seed: int = 0
    start_ms: int = START_MS
    records: list[Record] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.now = self.start_ms
        self.number = 0

    def build(self, evaluate_after: bool = True) -> list[Record]:
        self.published(0)
        self.evaluation(0)
        for update in range(1, self.updates + 1):
            p = 0.3 + 0.35 * update / max(self.updates, 8)
            trained = []
            while len(trained) < self.groups_per_update:
                stale = self.number % 17 == 16
                lost = self.number % 13 == 12
                group, admitted = self.group(update - 1, p, stale=stale, lost=lost)
                if admitted:
                    trained.append(group)
            self.update(update, trained)
            self.published(update)
        if evaluate_after:
            self.evaluation(self.updates)
        self.records.sort(key=time_of)
        return self.records

    def group(self, version: int, p: float, stale: bool = False, lost: bool = False) -> tuple[str, bool]:
        group = ids.group_id(self.run_id, self.number)
        task, family = f"binary_search-{self.number % 40:04d}", ("searching", "sorting")[self.number % 2]
        self.number += 1
        requested = self.now
        verdicts = []
        for member in range(self.group_size):
            broken = lost and member == 1
            verdicts.append(self.trial(group, member, task, family, version, bool(self.rng.random() < p), broken))
        rewards = [None if v.verdict == "unknown" else float(v.verdict == "pass") for v in verdicts]
        self.now = max(v.verification_ended_ms for v in verdicts) + 30
        closed = self.closed(group, task, family, verdicts, rewards, requested, version)
        reason = {"unresolved": "unresolved", "all_pass": "zero_contrast", "all_fail": "zero_contrast"}.get(
            closed.contrast
        )
        if reason is None and stale:
            reason = "stale"
        self.admission(closed, version + (3 if stale else int(self.rng.integers(0, 3))), reason)
        return group, reason is None

    def trial(
        self, group: str, member: int, task: str, family: str, version: int, passes: bool, broken: bool
    ) -> VerificationVerdict:
        trial = ids.trial_id(group, member)
        common = {"run_id": self.run_id, "group_id": group, "trial_id": trial}
        t0 = self.now + 20 * member
        self.records.append(
            RolloutRequested(
                **common, member=member, group_size=self.group_size, task_id=task, family=family,
                fixture_digest=DIGEST, taskset_digest=DIGEST, split="train", task_set="train", policy_version=version,
                temperature=1.0, top_k=0, top_p=1.0, max_turns=4, max_tokens=160, wall_s=60.0, seed=1000 + member,
                selection="pass_rate", selection_weight=0.01, selection_inputs='{"pass_rate": 0.4}', requested_ms=t0,
            )
        )  # fmt: skip
        t, tokens, parent = t0 + 15, 0, None
        turns = 2 if passes else 3
        for turn in range(turns):
            invocation = ids.invocation_id(trial, 0, turn)
            appended = np.arange(40 if turn == 0 else 12, dtype=np.int32) % 300
            sampled = (np.arange(14, dtype=np.int32) * 7 + turn) % 300
            took = int(60 + 40 * self.rng.random())
            self.records.append(
                Invocation(
                    **common, attempt=0, turn=turn, invocation_id=invocation, parent_id=parent, appended_ids=appended,
                    prefix_length=40 + 26 * turn, prefix_digest=DIGEST, sampled_ids=sampled,
                    logprobs=-np.linspace(0.01, 1.5, 14).astype(np.float32),
                    support_sizes=np.full(14, 512, dtype=np.int32), temperature=1.0, top_k=0, top_p=1.0,
                    seed=1000 + member, engine="torch", policy_version=version, tokenizer_digest=DIGEST,
                    split="train", template_digest=DIGEST, compaction=None, stop="stop_token", started_ms=t,
                    ended_ms=t + took,
                )
            )  # fmt: skip
            t, tokens, parent = t + took, tokens + 14, invocation
            self.operation(common, invocation, task, turn, turn == turns - 1, t)
            t += 25
        stop = "sandbox_lost" if broken else "submitted"
        self.records.append(
            RolloutCompleted(
                **common, attempt=0, task_id=task, fixture_digest=DIGEST, split="train", policy_version=version,
                newest_version=version, stop_reason=stop, infra_error="workspace gone" if broken else None,
                final_attempt=True, diff=None if broken else "--- a/f.py\n+++ b/f.py\n@@ -1 +1 @@\n-x\n+y\n",
                diff_uri=None, diff_digest=None if broken else DIGEST, invocations=turns, policy_tokens=tokens,
                malformed_actions=int(member == 3), outstanding_operations=(), outstanding_owner=None,
                requested_ms=t0, started_ms=t0 + 15, ended_ms=t, generation_ms=t - t0 - 15 - 25 * turns,
                tool_wait_ms=25 * turns,
            )
        )  # fmt: skip
        return self.verdict(common, task, version, passes, broken, turns, tokens, t0, t)

    def operation(self, common: dict[str, str], invocation: str, task: str, turn: int, last: bool, t: int) -> None:
        operation = ids.operation_id(invocation, 0)
        tool = "submit" if last else "edit"
        arguments = "{}" if last else json.dumps({"line": 3, "text": "return low"})
        self.records.append(
            SandboxCommand(
                **common, attempt=0, operation_id=operation, sequence=turn, task_id=task, fixture_digest=DIGEST,
                taskset_digest=DIGEST, tool=tool, arguments=arguments, cpu_s=0.1, wall_s=5.0, output_bytes=16384,
                issued_ms=t,
            )
        )  # fmt: skip
        self.records.append(
            SandboxResult(
                **common, attempt=0, operation_id=operation, sequence=turn, tool=tool, status="ok",
                observation="FAIL f(3)\nwant 2 got 1" if not last else "submitted", truncated=False,
                checks_passed=None if last else False, diff=None, cpu_s=0.004, memory_bytes=9_000_000,
                workspace_generation="g1", infra_error=None, started_ms=t + 2, ended_ms=t + 22,
            )
        )  # fmt: skip

    def verdict(
        self, common: dict[str, str], task: str, version: int, passes: bool, broken: bool, turns: int, tokens: int,
        t0: int, ended: int,
    ) -> VerificationVerdict:  # fmt: skip
        runs = 0 if broken else 3 if passes else 1
        for number in range(runs):
            self.records.append(
                VerificationTrial(
                    **common, attempt=0, number=number, infra_attempt=0, seed=number,
                    outcome="pass" if passes else "fail", cause="ok" if passes else "wrong_value", evidence="E3",
                    cases=30, cases_answered=30, cpu_s=0.02, memory_bytes=12_000_000, oom_kills=0, pids_denied=0,
                    host_pressure=None, started_ms=ended + 5 + 18 * number, ended_ms=ended + 20 + 18 * number,
                )
            )  # fmt: skip
        verdict = "unknown" if broken else "pass" if passes else "fail"
        reward = None if broken else float(passes)
        record = VerificationVerdict(
            **common, attempt=0, task_id=task, split="train", policy_version=version, newest_version=version,
            verdict=verdict, cause="sandbox_lost" if broken else "ok" if passes else "wrong_value", reward=reward,
            correctness=reward, format_score=None if broken else 1.0, length_score=None if broken else 0.2,
            evidence="none" if broken else "E3", trials_run=runs, trials_wanted=3, reused=False,
            verifier_digest=DIGEST, check_digest=DIGEST, fixture_digest=DIGEST,
            candidate_digest=None if broken else DIGEST, invocations=turns, policy_tokens=tokens, requested_ms=t0,
            started_ms=t0 + 15, ended_ms=ended, generation_ms=ended - t0 - 15 - 25 * turns, tool_wait_ms=25 * turns,
            verification_started_ms=ended + 5, verification_ended_ms=ended + 5 + 20 * max(runs, 1),
        )  # fmt: skip
        self.records.append(record)
        return record

    def closed(
        self, group: str, task: str, family: str, verdicts: list[VerificationVerdict], rewards: list[float | None],
        requested: int, version: int,
    ) -> GroupClosed:  # fmt: skip
        known = [r for r in rewards if r is not None]
        whole = len(known) == len(rewards)
        mean = float(np.mean(known)) if whole else None
        std = float(np.std(known)) if whole else None
        contrast = "unresolved" if not whole else "all_pass" if mean == 1 else "all_fail" if mean == 0 else "mixed"
        coefficients = tuple(None if not whole else 0.0 if not std else (r - mean) / std for r in rewards)
        record = GroupClosed(
            run_id=self.run_id, group_id=group, task_id=task, family=family, split="train", task_set="train",
            group_size=self.group_size, member_trials=tuple(v.trial_id for v in verdicts),
            member_attempts=(0,) * len(verdicts), member_verdicts=tuple(v.verdict for v in verdicts),
            member_rewards=tuple(rewards), member_coefficients=coefficients,
            member_versions=(version,) * len(verdicts), member_invocations=tuple(v.invocations for v in verdicts),
            member_tokens=tuple(v.policy_tokens for v in verdicts), mean=mean, std=std, advantage="std",
            contrast=contrast, rule="complete", requested_ms=requested, first_started_ms=requested + 15,
            last_ended_ms=max(v.ended_ms for v in verdicts), generation_ms=max(v.generation_ms for v in verdicts),
            tool_wait_ms=75, verification_ms=60, closed_ms=self.now,
        )  # fmt: skip
        self.records.append(record)
        return record

    def admission(self, closed: GroupClosed, trainer_version: int, reason: str | None) -> None:
        self.now += 4
        lag = trainer_version - closed.member_versions[0]
        self.records.append(
            GroupAdmission(
                run_id=self.run_id, group_id=closed.group_id, stage="admission",
                decision="admitted" if reason is None else "excluded", reason=reason, task_id=closed.task_id,
                family=closed.family, contrast=closed.contrast, trainer_version=trainer_version, max_lag=2,
                member_trials=closed.member_trials, member_attempts=closed.member_attempts,
                member_rewards=closed.member_rewards,
                member_coefficients=closed.member_coefficients, member_lags=(lag,) * self.group_size,
                member_invocations=closed.member_invocations, member_tokens=closed.member_tokens,
                pass_rate=closed.mean, oldest_version=closed.member_versions[0],
                age_generation_ms=closed.generation_ms, age_tool_wait_ms=75, age_verification_ms=60,
                age_buffer_ms=int(200 * self.rng.random()), age_queue_ms=4, decided_ms=self.now,
            )
        )  # fmt: skip

    def update(self, version: int, groups: list[str]) -> None:
        self.now += 700
        self.records.append(
            TrainingUpdate(
                run_id=self.run_id, update_id=f"{self.run_id}/u{version:06d}", policy_version=version,
                parent_version=version - 1, group_ids=tuple(groups), group_lags=(version % 3,) * len(groups),
                clip_low=0.2, clip_high=0.28, reduction="constant", advantage="std", kl_estimator="none", kl_weight=0.0,
                entropy_weight=0.0, correction_cap=2.0, imitation_weight=1.0, imitation_trials=48, imitation_loss=None,
                learning_rate=4e-4, optimizer_steps=2, loss=-0.01,
                policy_loss=-0.01,
                kl_loss=0.0, entropy=0.32 - 0.01 * version, ratio_p01=0.8, ratio_p50=1.0, ratio_p99=1.25,
                mismatch_mean=0.01 * (version % 3), mismatch_max=0.3, clip_low_fraction=0.01, clip_high_fraction=0.02,
                cap_fraction=0.0, gradient_norm=0.7, scored_tokens=700, prompt_tokens=2000, sequences=24,
                mean_reward=0.45,
                waited_ms=400, computed_ms=650, finished_ms=self.now,
            )
        )  # fmt: skip

    def published(self, version: int) -> None:
        self.now += 40
        uri = f"file:///store/manifests/{version}"
        parent = None if version == 0 else version - 1
        update = None if version == 0 else f"{self.run_id}/u{version:06d}"
        self.records.append(PolicyPublished(self.run_id, version, uri, DIGEST, parent, update, self.now))
        self.records.append(
            PolicyGate(
                self.run_id, version, uri, DIGEST, "promoted", '{"entropy": 0.3, "valid_actions": 0.95}', self.now + 60
            )
        )

    def evaluation(self, version: int) -> None:
        gain = 0.0 if version == 0 else 1.0
        sets = {"train": (80, 0.34, 0.2), "heldout_bugs": (60, 0.24, 0.12), "heldout_families": (30, 0.01, 0.0)}
        for name, (count, before, rise) in sets.items():
            p = np.clip(np.linspace(before - 0.2, before + 0.2, count) + gain * rise, 0, 1)
            passes = tuple(int(n) for n in self.rng.binomial(2, p))
            pass1 = sum(passes) / (2 * count)
            self.records.append(
                EvaluationResult(
                    run_id=self.run_id, policy_version=version, task_set=name,
                    task_ids=tuple(f"{name}-{i:04d}" for i in range(count)), task_samples=(2,) * count,
                    task_passes=passes, unresolved=0, k=2, pass_at_1=pass1, pass_at_k=min(1.0, pass1 * 1.3),
                    pass_hat_k=pass1 * 0.7, parent_version=None, difference=None, difference_low=None,
                    difference_high=None, finished_ms=self.now,
                )
            )  # fmt: skip


def positions(records: list[Record]) -> Iterator[tuple[Topic, Record]]:
    """Each record with its topic."""
    for record in records:
        yield TOPIC_OF[record.TYPE.name], record


def time_of(record: Record) -> int:
    """The moment at which the record was written (Unix milliseconds)."""
    for name in ("decided_ms", "closed_ms", "finished_ms", "published_ms", "verification_ended_ms", "ended_ms"):
        if hasattr(record, name):
            return int(getattr(record, name))
    return int(getattr(record, "issued_ms", getattr(record, "requested_ms", START_MS)))
