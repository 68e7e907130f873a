"""Every topic, declared once: key, partitions, retention, record, who writes and who reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from schemas.group import GroupAdmission, GroupClosed
from schemas.policy import EvaluationResult, PolicyGate, PolicyPublished, TrainingUpdate
from schemas.record import Record
from schemas.rollout import Invocation, RolloutCompleted, RolloutRequested
from schemas.sandbox import SandboxCommand, SandboxResult
from schemas.verification import VerificationAlarm, VerificationCanary, VerificationTrial, VerificationVerdict

DAY_MS = 24 * 3600 * 1000
DLQ_SUFFIX = ".dlq"

GROUPED = "grouped"
"""Partition class of topics keyed by group id: all have the same count, so that joins stay local to a partition."""
SINGLE = "single"
"""Partition class of control topics: one partition, total order."""


@dataclass(frozen=True)
class Topic:
    """One topic. `partition_class` becomes a number per deployment (`single` is always 1)."""

    name: str
    record: type[Record]
    key: Literal["group_id", "run_id"]
    partition_class: Literal["grouped", "single"]
    producers: tuple[str, ...]
    consumers: tuple[str, ...]
    retention_ms: int = 7 * DAY_MS
    compacted: bool = False
    max_bytes: int = 8 * 1024 * 1024
    dlq: bool = True

    def config(self) -> dict[str, str]:
        """Topic configuration in Kafka's names."""
        policy = "compact" if self.compacted else "delete"
        out = {"cleanup.policy": policy, "max.message.bytes": str(self.max_bytes)}
        out["message.timestamp.type"] = "CreateTime"
        # A service whose clock is an hour ahead stamps wrongly; by default Kafka would refuse its records and stop it.
        out["message.timestamp.after.max.ms"] = str(2**63 - 1)
        if not self.compacted:
            out["retention.ms"] = str(self.retention_ms)
        return out

    def partitions(self, grouped: int) -> int:
        """Partition count where the grouped class has `grouped` partitions."""
        return grouped if self.partition_class == GROUPED else 1


def _grouped(name: str, record: type[Record], producers: tuple[str, ...], consumers: tuple[str, ...]) -> Topic:
    return Topic(name, record, "group_id", "grouped", producers, consumers)


def _control(
    name: str, record: type[Record], producers: tuple[str, ...], consumers: tuple[str, ...], compacted: bool = False
) -> Topic:
    return Topic(
        name, record, "run_id", "single", producers, consumers, retention_ms=30 * DAY_MS, compacted=compacted, dlq=False
    )


ROLLOUT_REQUESTED = _grouped(
    "rollout.requested.v1", RolloutRequested, ("dispatch",), ("sampler", "closure", "dispatch", "gate")
)
ROLLOUT_INVOCATION = _grouped("rollout.invocation.v1", Invocation, ("sampler",), ("trainer", "sampler"))
SANDBOX_COMMAND = _grouped("sandbox.command.v1", SandboxCommand, ("sampler",), ("sandbox",))
SANDBOX_RESULT = _grouped("sandbox.result.v1", SandboxResult, ("sandbox",), ("sampler",))
ROLLOUT_COMPLETED = _grouped("rollout.completed.v1", RolloutCompleted, ("sampler",), ("verifier", "sampler"))
VERIFICATION_TRIAL = _grouped("verification.trial.v1", VerificationTrial, ("verifier",), ())
VERIFICATION_VERDICT = _grouped(
    "verification.verdict.v1", VerificationVerdict, ("verifier",), ("closure", "verifier", "gate")
)
VERIFICATION_CANARY = _control("verification.canary.v1", VerificationCanary, ("verifier",), ("verifier",))
VERIFICATION_ALARM = _control(
    "verification.alarm.v1", VerificationAlarm, ("verifier",), ("verifier", "gate", "dispatch")
)
GROUP_CLOSED = _grouped("group.closed.v1", GroupClosed, ("closure",), ("admission", "closure"))
GROUP_ADMISSION = _grouped(
    "group.admission.v1", GroupAdmission, ("admission", "trainer"), ("trainer", "dispatch", "admission")
)
POLICY_PUBLISHED = _control(
    "policy.published.v1", PolicyPublished, ("trainer",), ("gate", "admission", "trainer"), compacted=True
)
POLICY_GATE = _control("policy.gate.v1", PolicyGate, ("gate",), ("sampler", "dispatch", "gate", "admission"))
TRAINING_UPDATE = _control("training.update.v1", TrainingUpdate, ("trainer",), ("dispatch", "trainer"))
EVALUATION_RESULT = _control("evaluation.result.v1", EvaluationResult, ("gate",), ("dispatch", "gate"))

ALL: tuple[Topic, ...] = (
    ROLLOUT_REQUESTED,
    ROLLOUT_INVOCATION,
    SANDBOX_COMMAND,
    SANDBOX_RESULT,
    ROLLOUT_COMPLETED,
    VERIFICATION_TRIAL,
    VERIFICATION_VERDICT,
    VERIFICATION_CANARY,
    VERIFICATION_ALARM,
    GROUP_CLOSED,
    GROUP_ADMISSION,
    POLICY_PUBLISHED,
    POLICY_GATE,
    TRAINING_UPDATE,
    EVALUATION_RESULT,
)
BY_NAME: Mapping[str, Topic] = {topic.name: topic for topic in ALL}


def dead_letter(topic: Topic) -> str | None:
    """Name of the topic's dead-letter topic; None for ordered control topics, which stop instead."""
    return topic.name + DLQ_SUFFIX if topic.dlq else None
