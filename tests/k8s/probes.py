"""Connections tried from inside a pod: which open, which are refused, and by whom."""

from __future__ import annotations

import json
from dataclasses import dataclass

from tests.k8s.cluster import Cluster

_ASK = """
import concurrent.futures, json, socket, sys
def tried(target):
    name, host, port = target
    try:
        socket.create_connection((host, port), float(sys.argv[2])).close()
        return name, "open"
    except socket.gaierror as e:
        return name, f"no such name: {e}"
    except TimeoutError:
        return name, "silence"
    except OSError as e:
        return name, e.strerror or repr(e)
targets = json.loads(sys.argv[1])
with concurrent.futures.ThreadPoolExecutor(len(targets)) as pool:
    print(json.dumps(dict(pool.map(tried, targets))))
"""
OPEN = "open"


@dataclass(frozen=True)
class Target:
    """Somewhere to connect to; `name` is what the report calls it."""

    name: str
    host: str
    port: int


def connections(
    cluster: Cluster, namespace: str, pod: str, targets: list[Target], timeout_s: float = 3.0
) -> dict[str, str]:
    """Name of each target -> "open", or why not. All are tried at once, by the pod's own Python."""
    given = json.dumps([(t.name, t.host, t.port) for t in targets])
    said = python(cluster, namespace, pod, _ASK, given, str(timeout_s))
    return dict(json.loads(said.splitlines()[-1]))


def python(cluster: Cluster, namespace: str, pod: str, code: str, *arguments: str, timeout_s: float = 60) -> str:
    """What a program prints that the pod's own Python runs, as the service's user in its network. Raises Refused."""
    return cluster.kubectl(
        "-n", namespace, "exec", pod, "--", "python", "-c", code, *arguments, timeout_s=timeout_s
    )  # fmt: skip
