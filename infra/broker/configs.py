"""Topic configuration: the names Apache Kafka knows, their defaults here, and which of them the broker acts on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from infra.broker.errors import Code, Rejected

MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1


class ConfigType(IntEnum):
    """Value types as DescribeConfigs reports them."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class ConfigSource(IntEnum):
    """Where a value comes from, as DescribeConfigs reports it."""

    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


@dataclass(frozen=True)
class Known:
    """One configuration name: type, default, the values it takes."""

    type: ConfigType
    default: str
    check: Callable[[str], bool]


def _int(low: int, high: int) -> Callable[[str], bool]:
    return lambda text: low <= int(text) <= high


def _among(*values: str) -> Callable[[str], bool]:
    return lambda text: text in values


def _list_among(*values: str) -> Callable[[str], bool]:
    return lambda text: all(item.strip() in values for item in text.split(",") if item.strip())


def _fraction(text: str) -> bool:
    return 0.0 <= float(text) <= 1.0


_BOOL = _among("true", "false")
_CODECS = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
_I, _L, _S, _B = ConfigType.INT, ConfigType.LONG, ConfigType.STRING, ConfigType.BOOLEAN

ACTED_ON: Mapping[str, Known] = {
    "cleanup.policy": Known(ConfigType.LIST, "delete", _list_among("delete", "compact")),
    "retention.ms": Known(_L, "604800000", _int(-1, MAX_LONG)),
    "retention.bytes": Known(_L, "-1", _int(-1, MAX_LONG)),
    "segment.bytes": Known(_I, "67108864", _int(14, MAX_INT)),
    "segment.ms": Known(_L, "604800000", _int(1, MAX_LONG)),
    "max.message.bytes": Known(_I, "1048588", _int(0, MAX_INT)),
    "message.timestamp.type": Known(_S, "CreateTime", _among("CreateTime", "LogAppendTime")),
    "message.timestamp.after.max.ms": Known(_L, "3600000", _int(0, MAX_LONG)),
    "message.timestamp.before.max.ms": Known(_L, str(MAX_LONG), _int(0, MAX_LONG)),
    "min.cleanable.dirty.ratio": Known(ConfigType.DOUBLE, "0.5", _fraction),
    "min.compaction.lag.ms": Known(_L, "0", _int(0, MAX_LONG)),
    "max.compaction.lag.ms": Known(_L, str(MAX_LONG), _int(1, MAX_LONG)),
    "delete.retention.ms": Known(_L, "86400000", _int(0, MAX_LONG)),
}
"""Names that change what the broker does."""

ACCEPTED: Mapping[str, Known] = {
    "compression.type": Known(_S, "producer", _among(*_CODECS)),
    "compression.gzip.level": Known(_I, "-1", _int(-1, 9)),
    "compression.lz4.level": Known(_I, "9", _int(1, 17)),
    "compression.zstd.level": Known(_I, "3", _int(-131072, 22)),
    "file.delete.delay.ms": Known(_L, "60000", _int(0, MAX_LONG)),
    "flush.messages": Known(_L, str(MAX_LONG), _int(1, MAX_LONG)),
    "flush.ms": Known(_L, str(MAX_LONG), _int(0, MAX_LONG)),
    "index.interval.bytes": Known(_I, "4096", _int(0, MAX_INT)),
    "message.downconversion.enable": Known(_B, "true", _BOOL),
    "min.insync.replicas": Known(_I, "1", _int(1, MAX_INT)),
    "preallocate": Known(_B, "false", _BOOL),
    "segment.index.bytes": Known(_I, "10485760", _int(4, MAX_INT)),
    "segment.jitter.ms": Known(_L, "0", _int(0, MAX_LONG)),
    "unclean.leader.election.enable": Known(_B, "false", _BOOL),
}
"""Names that are checked, stored and described, so that one topic declaration works everywhere, but change nothing."""

KNOWN: Mapping[str, Known] = {**ACTED_ON, **ACCEPTED}


@dataclass(frozen=True)
class TopicConfig:
    """What was set on a topic, and the parsed values the log works with (bytes, milliseconds; -1 = no limit)."""

    overrides: Mapping[str, str]
    compact: bool
    delete: bool
    retention_ms: int
    retention_bytes: int
    segment_bytes: int
    segment_ms: int
    max_message_bytes: int
    append_time: bool
    after_max_ms: int
    before_max_ms: int
    dirty_ratio: float
    compaction_lag_ms: int
    max_compaction_lag_ms: int
    delete_retention_ms: int

    @classmethod
    def of(cls, overrides: Mapping[str, str]) -> TopicConfig:
        """Parse `overrides` over the defaults; raises Rejected(INVALID_CONFIG) naming the bad entry."""
        for name, value in overrides.items():
            check(name, value)
        value_of = {name: overrides.get(name, known.default) for name, known in ACTED_ON.items()}
        policies = {item.strip() for item in value_of["cleanup.policy"].split(",")}
        return cls(
            overrides=dict(overrides),
            compact="compact" in policies,
            delete="delete" in policies,
            retention_ms=int(value_of["retention.ms"]),
            retention_bytes=int(value_of["retention.bytes"]),
            segment_bytes=int(value_of["segment.bytes"]),
            segment_ms=int(value_of["segment.ms"]),
            max_message_bytes=int(value_of["max.message.bytes"]),
            append_time=value_of["message.timestamp.type"] == "LogAppendTime",
            after_max_ms=int(value_of["message.timestamp.after.max.ms"]),
            before_max_ms=int(value_of["message.timestamp.before.max.ms"]),
            dirty_ratio=float(value_of["min.cleanable.dirty.ratio"]),
            compaction_lag_ms=int(value_of["min.compaction.lag.ms"]),
            max_compaction_lag_ms=int(value_of["max.compaction.lag.ms"]),
            delete_retention_ms=int(value_of["delete.retention.ms"]),
        )


def check(name: str, value: str | None) -> None:
    """Raises Rejected(INVALID_CONFIG) unless `name` is known and takes `value`."""
    known = KNOWN.get(name)
    if known is None:
        raise Rejected(Code.INVALID_CONFIG, f"Unknown topic config name: {name}")
    try:
        good = value is not None and known.check(value)
    except ValueError:
        good = False
    if not good:
        raise Rejected(Code.INVALID_CONFIG, f"Invalid value {value} for configuration {name}")
