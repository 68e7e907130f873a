"""A deployed run that is disturbed while it goes on: rolls, deletions, scaling; and what each of them did to it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from schemas.topics import POLICY_GATE, ROLLOUT_REQUESTED, TRAINING_UPDATE
from tests.k8s.cluster import Cluster, Refused, until
from tests.k8s.outside import Outside, Recovery, recovery
from tests.k8s.pods import OURS, PodLife, PodWatch
from tests.k8s.progress import Table

SERVICES = ("dispatch", "sampler", "sandbox", "verifier", "closure", "admission", "trainer", "gate", "recorder")
SPEAKS = {"dispatch": ROLLOUT_REQUESTED.name, "gate": POLICY_GATE.name, "trainer": TRAINING_UPDATE.name}
"""What those write that read topics from places of their own instead of a group's: they are back when they write."""
_READY_S = 150


@dataclass(frozen=True)
class Workload:
    """A Deployment or StatefulSet of a service."""

    service: str
    namespace: str
    kind: str

    @property
    def name(self) -> str:
        return f"{self.kind}/{self.service}"


@dataclass
class Run:
    """What is deployed, the eyes on it, and a table for what they see. `workloads` by service, once `find` ran."""

    cluster: Cluster
    pods: PodWatch
    outside: Outside
    table: Table
    workloads: dict[str, Workload] = field(default_factory=dict)

    def find(self) -> None:
        """Look up which service is which object in which namespace."""
        found = self.cluster.get("deployments,statefulsets", "-A", "-l", f"{OURS},app.kubernetes.io/component=service")
        for item in found["items"]:
            meta = item["metadata"]
            self.workloads[meta["name"]] = Workload(meta["name"], meta["namespace"], item["kind"].lower())

    def kubectl(self, service: str, *arguments: str, timeout_s: float = 30) -> str:
        """kubectl in the namespace of a service."""
        return self.cluster.kubectl("-n", self.workloads[service].namespace, *arguments, timeout_s=timeout_s)

    def settled(self, timeout_s: float = _READY_S) -> None:
        """Wait until every service has all its pods ready and none is on its way out."""

        def all_ready() -> bool:
            items = self.cluster.get("deployments,statefulsets", "-A", "-l", OURS)["items"]
            wanted = [item["spec"]["replicas"] for item in items]
            ready = [item.get("status", {}).get("readyReplicas", 0) for item in items]
            return wanted == ready and not self.pods.leaving()

        until(all_ready, timeout_s, "all pods ready")

    def pod(self, service: str) -> PodLife:
        """A ready pod of a service."""

        def ready() -> PodLife | None:
            return next((life for life in self.pods.standing(service) if life.ready is not None), None)

        found = until(ready, _READY_S, f"a ready pod of {service}", every_s=0.2)
        assert found is not None
        return found

    def roll(self, service: str, image: str) -> tuple[float, Recovery | None]:
        """Give one service another image; seconds until it is rolled out, and what became of its lag."""
        workload = self.workloads[service]
        staying = ((uid, life) for uid, life in self.pods.lives.items() if life.asked is None and life.gone is None)
        others = {uid for uid, life in staying if life.service != service}
        began = time.monotonic()
        self.kubectl(service, "set", "image", workload.name, f"service={image}")
        self.kubectl(service, "rollout", "status", workload.name, f"--timeout={_READY_S}s", timeout_s=_READY_S + 10)
        took = time.monotonic() - began

        def replaced() -> bool:
            return all(life.image == image for life in self.pods.standing(service))

        until(replaced, 30, f"the old pods of {service} asked to go", every_s=0.1)
        asked = [self.pods.lives[uid].name for uid in others if self.pods.lives[uid].asked is not None]
        assert not asked, f"rolling {service} took other pods with it: {asked}"
        return took, self.recovered(service, began)

    def recovered(self, service: str, began: float, timeout_s: float = 60) -> Recovery | None:
        """Wait until the service has caught up with what waited for it since `began`; None: it reads by no group."""
        if service in SPEAKS:
            ready = self.pod(service).ready or began
            topic = SPEAKS[service]
            before = max((s.ends.get(topic, 0) for s in self.outside.samples if s.at <= ready), default=0)

            def spoke() -> Recovery | None:
                heard = (s for s in self.outside.samples if s.at > ready and s.ends.get(topic, 0) > before)
                first = next(heard, None)
                return Recovery(0, 0, first.at - began) if first else None

            return until(spoke, timeout_s, f"{service} writing to {topic}")

        def back() -> Recovery | None:
            found = recovery(self.outside.samples, service, began)
            return found if found.after_s is not None and self.outside.latest.at > began + 2 else None

        return until(back, timeout_s, f"the lag of {service} back where it was")

    def progress(self, updates: int, timeout_s: float = 120) -> None:
        """Wait until the trainer has made so many more updates."""
        before = self.outside.count(TRAINING_UPDATE.name)
        what = f"{updates} more updates"
        until(lambda: self.outside.count(TRAINING_UPDATE.name) >= before + updates, timeout_s, what)

    def delete(self, pod: PodLife, force: bool) -> None:
        """Take a pod away: with its grace period, or at once."""
        how = ["--grace-period=0", "--force"] if force else ["--wait=false"]
        self.cluster.kubectl("-n", pod.namespace, "delete", "pod", pod.name, *how)

    def scale(self, replicas: int, *services: str) -> None:
        """Say how many pods each of these services shall have, and wait until it has just these, ready."""
        for service in services:
            self.kubectl(service, "scale", self.workloads[service].name, f"--replicas={replicas}")
        for service in services:
            until(lambda s=service: self.replicas(s) == replicas, _READY_S, f"{replicas} ready pods of {service}")

    def replicas(self, service: str) -> int:
        """Ready pods of a service that nobody has asked to go."""
        return sum(life.ready is not None for life in self.pods.standing(service))

    def attempt(self, act: Callable[[], None]) -> bool:
        """Whether it was done; a pod that went away in the meantime is no failure."""
        try:
            act()
        except Refused as refused:
            if "NotFound" not in str(refused):
                raise
            return False
        return True
