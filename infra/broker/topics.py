"""The registry of topics: names, partitions and configuration, kept in one atomically replaced, synced file."""

from __future__ import annotations

import json
import logging
import re
import resource
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infra.broker.configs import TopicConfig
from infra.broker.errors import BrokerError, Code, Rejected
from infra.broker.files import replace_atomically
from infra.broker.log import PartitionLog, remove_tree

logger = logging.getLogger(__name__)

LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
MAX_PARTITIONS = 1000
PRODUCER_ID_BLOCK = 1000
FORMAT = 1


class Topic:
    """One topic and its partition logs."""

    def __init__(self, name: str, incarnation: str, config: TopicConfig, logs: list[PartitionLog]) -> None:
        self.name = name
        self.incarnation = incarnation
        self.config = config
        self.logs = logs

    def configure(self, config: TopicConfig) -> None:
        self.config = config
        for log in self.logs:
            log.config = config


class Topics:
    """All topics of one data directory, with the broker's identity: cluster id, leader epoch, producer ids."""

    def __init__(self, directory: Path, verify: bool = False) -> None:
        self._directory = directory
        self._meta_path = directory / "meta.json"
        self._logs_root = directory / "topics"
        self._logs_root.mkdir(parents=True, exist_ok=True)
        self.by_name: dict[str, Topic] = {}
        self._producer_ids = (0, 0)
        meta = self._load_meta()
        self.cluster_id: str = meta["cluster_id"]
        self.epoch: int = meta["epoch"] + 1
        self._reserved_ids: int = meta["reserved_producer_ids"]
        live = set()
        for name, entry in meta["topics"].items():
            config = TopicConfig.of(entry["config"])
            folder = self._folder(name, entry["incarnation"])
            live.add(folder.name)
            logs = [
                PartitionLog(folder / str(index), config, self.epoch, verify=verify)
                for index in range(entry["partitions"])
            ]
            self.by_name[name] = Topic(name, entry["incarnation"], config, logs)
        for path in self._logs_root.iterdir():
            if path.name not in live:
                remove_tree(path)
        self._save()

    def _load_meta(self) -> dict[str, Any]:
        if not self._meta_path.exists():
            return {
                "format": FORMAT,
                "cluster_id": uuid.uuid4().hex[:22],
                "epoch": -1,
                "reserved_producer_ids": 0,
                "topics": {},
            }
        try:
            meta: dict[str, Any] = json.loads(self._meta_path.read_bytes())
            if meta["format"] == FORMAT:
                return meta
            problem = f"format {meta['format']} is not {FORMAT}"
        except (ValueError, KeyError, TypeError) as error:
            problem = f"unreadable: {error}"
        raise BrokerError(
            f"the broker's registry is {problem}",
            str(self._meta_path),
            "start with a new --data directory, or restore this file",
        )

    def _save(self) -> None:
        topics = {
            topic.name: {
                "incarnation": topic.incarnation,
                "partitions": len(topic.logs),
                "config": dict(topic.config.overrides),
            }
            for topic in self.by_name.values()
        }
        meta = {
            "format": FORMAT,
            "cluster_id": self.cluster_id,
            "epoch": self.epoch,
            "reserved_producer_ids": self._reserved_ids,
            "topics": topics,
        }
        replace_atomically(self._meta_path, json.dumps(meta, indent=1).encode())

    def _folder(self, name: str, incarnation: str) -> Path:
        return self._logs_root / f"{name}@{incarnation}"

    def log(self, topic: str, partition: int) -> PartitionLog | None:
        """The log of one partition, None when it does not exist."""
        found = self.by_name.get(topic)
        if found is None or not 0 <= partition < len(found.logs):
            return None
        return found.logs[partition]

    def logs(self) -> list[PartitionLog]:
        return [log for topic in self.by_name.values() for log in topic.logs]

    def new_producer_id(self) -> int:
        """An id that no producer of this data directory ever had; raises OSError when a block cannot be reserved."""
        following, end = self._producer_ids
        if following >= end:
            following = self._reserved_ids
            self._reserved_ids += PRODUCER_ID_BLOCK
            try:
                self._save()
            except OSError:
                self._reserved_ids -= PRODUCER_ID_BLOCK
                raise
            end = self._reserved_ids
        self._producer_ids = (following + 1, end)
        return following

    def create(self, name: str, partitions: int, config: Mapping[str, str], validate_only: bool) -> None:
        """Create a topic; raises Rejected (name, count, config, exists) or OSError."""
        check_name(name)
        if name in self.by_name:
            raise Rejected(Code.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if partitions < 1 or partitions > MAX_PARTITIONS:
            raise Rejected(Code.INVALID_PARTITIONS, f"partitions must be 1..{MAX_PARTITIONS}, not {partitions}")
        parsed = TopicConfig.of(config)
        if validate_only:
            return
        incarnation = uuid.uuid4().hex[:12]
        folder = self._folder(name, incarnation)
        try:
            logs = [PartitionLog(folder / str(index), parsed, self.epoch) for index in range(partitions)]
            self.by_name[name] = Topic(name, incarnation, parsed, logs)
            self._save()
        except OSError:
            self.by_name.pop(name, None)
            remove_tree(folder)
            raise

    def delete(self, name: str) -> None:
        """Delete a topic and its records; raises Rejected when unknown, OSError when it cannot be made durable."""
        topic = self.by_name.get(name)
        if topic is None:
            raise Rejected(Code.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
        del self.by_name[name]
        try:
            self._save()
        except OSError:
            self.by_name[name] = topic
            raise
        for log in topic.logs:
            log.mark_removed()
            for waiter in tuple(log.waiters):
                waiter.grew(1 << 31)  # parked fetches answer that the topic is gone
            log.close()
        try:
            remove_tree(self._folder(name, topic.incarnation))
        except OSError as error:  # a compaction may still hold it; what is left goes at the next start
            logger.warning("could not remove all of topic %s: %s", name, error)

    def add_partitions(self, name: str, count: int, validate_only: bool) -> None:
        """Grow a topic to `count` partitions; raises Rejected or OSError."""
        topic = self.by_name.get(name)
        if topic is None:
            raise Rejected(Code.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
        have = len(topic.logs)
        if count <= have or count > MAX_PARTITIONS:
            raise Rejected(
                Code.INVALID_PARTITIONS,
                f"The topic {name} currently has {have} partition(s); {count} would not be an increase.",
            )
        if validate_only:
            return
        folder = self._folder(name, topic.incarnation)
        try:
            for index in range(have, count):
                topic.logs.append(PartitionLog(folder / str(index), topic.config, self.epoch))
            self._save()
        except OSError:
            for log in topic.logs[have:]:
                log.close()
            del topic.logs[have:]
            raise

    def configure(self, name: str, overrides: Mapping[str, str], validate_only: bool) -> None:
        """Replace a topic's configuration; raises Rejected or OSError."""
        topic = self.by_name.get(name)
        if topic is None:
            raise Rejected(Code.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        parsed, before = TopicConfig.of(overrides), topic.config
        if validate_only:
            return
        topic.configure(parsed)
        try:
            self._save()
        except OSError:
            topic.configure(before)
            raise

    def close(self) -> None:
        for log in self.logs():
            log.close()


def legal(name: str) -> bool:
    """Does Kafka allow this topic name?"""
    return LEGAL_NAME.fullmatch(name) is not None and name not in (".", "..")


def check_name(name: str) -> None:
    """Raises Rejected(INVALID_TOPIC) for a name Kafka does not allow."""
    if not legal(name):
        raise Rejected(
            Code.INVALID_TOPIC, f"Topic name is invalid: '{name}' (letters, digits, '.', '_', '-'; at most 249)"
        )


def raise_file_limit() -> None:
    """Every partition keeps its active segment open: take as many descriptors as the system grants."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = min(hard, 65536) if hard != resource.RLIM_INFINITY else 65536
    if soft < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
