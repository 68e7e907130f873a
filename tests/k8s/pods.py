"""What became of every pod of a namespace, by the cluster's own stream of changes: when ready, when gone, ended how."""

from __future__ import annotations

import contextlib
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.k8s.cluster import Cluster, end, spawn

OURS = "app.kubernetes.io/part-of=rollstream"


@dataclass
class PodLife:
    """Times are `time.monotonic` of when the change was heard of; None: has not happened.

    `exit_code` is of the service's container when the pod was taken away, None where the cluster never said it (a pod
    that was deleted by force is forgotten first). `restarts` are its container's ends outside of a deletion.
    """

    namespace: str
    name: str
    service: str
    image: str
    created: float
    ready: float | None = None
    asked: float | None = None
    gone: float | None = None
    exit_code: int | None = None
    restarts: int = 0
    ends: list[str] = field(default_factory=list)
    ip: str = ""


class PodWatch:
    """Lives by pod uid of everything of ours in every namespace, kept up by a `kubectl get --watch` until `close`."""

    def __init__(self, cluster: Cluster) -> None:
        self.lives: dict[str, PodLife] = {}
        line = cluster.line("ctl", "get", "pods", "-A", "-l", OURS, "--watch", "--output-watch-events", "-o", "json")
        self._process = spawn(line, stderr=subprocess.DEVNULL)
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        assert self._process.stdout is not None
        for event in events(iter(lambda: self._process.stdout.readline(), "")):  # type: ignore[union-attr]  # as asserted
            with contextlib.suppress(KeyError, TypeError):
                take(self.lives, event["type"], event["object"], time.monotonic())

    def close(self) -> None:
        end(self._process)
        self._thread.join(5)

    def of(self, service: str) -> list[PodLife]:
        """Pods of a service, oldest first."""
        return [life for life in list(self.lives.values()) if life.service == service]

    def standing(self, service: str) -> list[PodLife]:
        """Those that nobody has asked to go."""
        return [life for life in self.of(service) if life.asked is None and life.gone is None]

    def leaving(self) -> list[PodLife]:
        """Those that were asked to go and are still there."""
        return [life for life in list(self.lives.values()) if life.asked is not None and life.gone is None]


def events(lines: Iterator[str]) -> Iterator[Any]:
    """The changes of a stream that prints one a line; the last may be cut short."""
    for line in lines:
        with contextlib.suppress(ValueError):
            yield json.loads(line)


def take(lives: dict[str, PodLife], kind: str, pod: dict[str, Any], now: float) -> None:
    """Note one change of one pod."""
    meta, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
    main = spec["containers"][0]
    service = meta.get("labels", {}).get("app.kubernetes.io/name", main["name"])
    life = lives.setdefault(meta["uid"], PodLife(meta["namespace"], meta["name"], service, main["image"], now))
    life.ip = status.get("podIP", life.ip)
    if life.ready is None and any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions", ())):
        life.ready = now
    if life.asked is None and "deletionTimestamp" in meta:
        life.asked = now
    for container in status.get("containerStatuses", ()):
        if container["name"] == main["name"]:
            _ended(life, container)
    if kind == "DELETED" and life.gone is None:
        life.gone = now
        life.asked = life.asked or now


def _ended(life: PodLife, container: dict[str, Any]) -> None:
    life.restarts = max(life.restarts, container.get("restartCount", 0))
    for state in ("state", "lastState"):
        if ended := container.get(state, {}).get("terminated"):
            said = f"exit code {ended.get('exitCode')} ({ended.get('reason', '')}) at {ended.get('finishedAt', '')}"
            if said not in life.ends:
                life.ends.append(said)
            if life.asked is not None and state == "state":
                life.exit_code = ended.get("exitCode")
