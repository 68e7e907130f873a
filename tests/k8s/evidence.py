"""What a person looks at first when something fails in a cluster: pods, warnings, and the last words of the unwell."""

from __future__ import annotations

from typing import Any

from tests.k8s.cluster import Cluster, Refused

_TAIL = 25
_EVENTS = 25
_PODS = 5


def evidence(cluster: Cluster, namespace: str) -> str:
    """Text for the report of a failed test; what cannot be asked any more is said instead."""
    parts = [f"pods of {namespace}", _asked(cluster, namespace, "get", "pods", "-o", "wide"), "events that warn"]
    events = _asked(
        cluster, namespace, "get", "events", "--field-selector", "type!=Normal", "--sort-by", ".lastTimestamp"
    )
    parts += events.splitlines()[-_EVENTS:]
    try:
        pods = cluster.get("pods", "-n", namespace)["items"]
    except (Refused, ValueError) as refused:
        return "\n".join([*parts, str(refused)])
    for name, before in [found for pod in pods for found in _unwell(pod)][:_PODS]:
        parts.append(f"last words of {name}{' before its restart' if before else ''}")
        parts.append(
            _asked(cluster, namespace, "logs", name, "--tail", str(_TAIL), *(["--previous"] if before else []))
        )
    return "\n".join(parts)


def _asked(cluster: Cluster, namespace: str, *question: str) -> str:
    try:
        return cluster.kubectl("-n", namespace, *question)
    except Refused as refused:
        return str(refused)[-600:]


def _unwell(pod: dict[str, Any]) -> list[tuple[str, bool]]:
    """(pod, whether its previous container is meant) for what is not ready, has failed, or was started again."""
    name, status = pod["metadata"]["name"], pod.get("status", {})
    if status.get("phase") == "Succeeded":
        return []
    containers = status.get("containerStatuses", [])
    out = [(name, True)] if any(c.get("restartCount") for c in containers) else []
    if not containers or not all(c.get("ready") for c in containers):
        out.append((name, False))
    return out
