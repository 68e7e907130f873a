"""What jails are in every kind of pod: the self-test passes and says what is absent, or names the setting to change."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.sandbox import behind_walls
from tests.k8s.building import NOW, Builder, image
from tests.k8s.cluster import Cluster, until

ROOT = Path(__file__).parents[2]
NAMESPACE = "rs-jail"
PROFILE = ROOT / "infra" / "k8s" / "components" / "seccomp-localhost" / "rollstream-jail.json"
LIMIT_MB = 400
# What the services do at their start, as one line of JSON.
_CHECK = """
import json
from services.runtime.errors import UserError
from services.runtime.jail.backend import open_backend
from services.runtime.settings import Isolation
try:
    with open_backend(Isolation(backend="bubblewrap"), 4) as host:
        host.check()
        around = host.surroundings
        print(json.dumps({"evidence": host.evidence, "absent": host.weaknesses, "wall": around.memory_limit()}))
except UserError as error:
    print(json.dumps({"refused": str(error)}))
"""
_WALLS = f"""
import sys
sys.path.append("/repository")
from tests.contract.sandbox.behind_walls import main
main({LIMIT_MB})
"""
_RESTRICTED: dict[str, Any] = {
    "runAsUser": 10001, "runAsGroup": 10001, "runAsNonRoot": True, "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True,
}  # fmt: skip
_ROOTS = ["SYS_ADMIN", "SETUID", "SETGID", "SETPCAP", "SYS_CHROOT", "CHOWN", "KILL", "SETFCAP"]
_OPEN = {"type": "Unconfined"}
CONTEXTS: dict[str, dict[str, Any]] = {
    "unprivileged": {**_RESTRICTED, "seccompProfile": _OPEN},
    "default-profile": {**_RESTRICTED, "seccompProfile": {"type": "RuntimeDefault"}},
    "own-profile": {**_RESTRICTED, "seccompProfile": {"type": "Localhost", "localhostProfile": PROFILE.name}},
    "root": {
        "runAsUser": 0, "readOnlyRootFilesystem": True, "seccompProfile": _OPEN,
        "capabilities": {"drop": ["ALL"], "add": _ROOTS},
    },
    "privileged": {"runAsUser": 0, "readOnlyRootFilesystem": True, "privileged": True},
    "walls": {**_RESTRICTED, "seccompProfile": _OPEN},
}  # fmt: skip


def pod(name: str) -> dict[str, Any]:
    """A pod of the verifier's image that says what its jails are."""
    container = {
        "name": "service", "image": image("verifier", NOW), "imagePullPolicy": "IfNotPresent",
        "command": ["python", "-c", _WALLS if name == "walls" else _CHECK], "securityContext": CONTEXTS[name],
        "env": [{"name": "HOME", "value": "/tmp"}], "resources": {"limits": {"memory": f"{LIMIT_MB}Mi"}},
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"},
                         {"name": "tests", "mountPath": "/repository/tests", "readOnly": True}],
    }  # fmt: skip
    volumes = [{"name": "tmp", "emptyDir": {}}, {"name": "tests", "hostPath": {"path": str(ROOT / "tests")}}]
    spec = {"restartPolicy": "Never", "automountServiceAccountToken": False, "containers": [container],
            "volumes": volumes, "terminationGracePeriodSeconds": 1}  # fmt: skip
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


@pytest.fixture(scope="module")
def said(cluster: Cluster, builder: Builder) -> Iterator[dict[str, Any]]:
    """By pod: the document that it printed."""
    builder.finish()
    builder.hand_over(cluster, [image("verifier", NOW)])
    profiles = cluster.folder / "kubelet" / "seccomp"
    profiles.mkdir(exist_ok=True)
    shutil.copy(PROFILE, profiles)
    try:
        space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        items = [space, *map(pod, CONTEXTS)]
        cluster.kubectl("apply", "-f", "-", given=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        yield {name: document(cluster, name) for name in CONTEXTS}
    finally:
        cluster.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--wait=false")


def document(cluster: Cluster, name: str) -> Any:
    """The last line that the pod printed, once it has ended."""

    def phase() -> str:
        now = str(cluster.get("pod", name, "-n", NAMESPACE)["status"]["phase"])
        return now if now in ("Succeeded", "Failed") else ""

    until(phase, 180, f"the end of pod {name}")
    lines = cluster.kubectl("logs", name, "-n", NAMESPACE).splitlines()
    assert lines, f"pod {name} printed nothing"
    return json.loads(lines[-1]) if lines[-1].startswith("{") else pytest.fail("\n".join(lines[-20:]))


@pytest.mark.parametrize(("name", "evidence", "absent"), [
    ("unprivileged", "sampled", ["one_user", "no_inode_limit", "one_library", "namespaces_by_filter"]),
    ("own-profile", "sampled", ["one_user", "no_inode_limit", "one_library", "namespaces_by_filter"]),
    ("root", "sampled", ["namespaces_by_filter"]),
    ("privileged", "cgroup", []),
])  # fmt: skip
def test_the_self_test_holds_and_says_what_is_absent(
    said: dict[str, Any], name: str, evidence: str, absent: list[str]
) -> None:
    assert said[name] == {"evidence": evidence, "absent": absent, "wall": LIMIT_MB << 20}


def test_the_runtime_s_default_profile_refuses_with_the_setting_to_change(said: dict[str, Any]) -> None:
    refused = said["default-profile"]["refused"]
    assert "this container's seccomp profile refuses new user namespaces" in refused
    assert f"localhostProfile: {PROFILE.name}" in refused


def test_attribution_in_the_unprivileged_pod(said: dict[str, Any]) -> None:
    found = said["walls"]
    ends = {name: (found[name]["outcome"], found[name]["cause"]) for name in behind_walls.PROGRAMS}
    assert {name for name, end in ends.items() if end == ("pass", "ok")} == {
        "right", "kills itself", "kills all that it sees", "memory that children share", "as many as it may",
    }  # fmt: skip
    for name in ("memory of several", "shared memory of several", "memory of several that hide"):
        assert ends[name] == ("fail", "oom")
    assert ends["forks"] == ("fail", "processes")
    assert {outcome for outcome, _ in ends.values()} == {"pass", "fail"}
    assert (found["out of memory"]["outcome"], found["out of memory"]["cause"]) == ("infra", "memory_killer")
    assert found["after"]["outcome"] == "pass"
