"""The component that narrows the jails' namespace, on a real server: our pods pass, what is beyond them does not."""

import copy
import json
import os

import pytest
import yaml

from tests.infra.k8s.render import K8S, name_of, of_kind, parse, template
from tests.k8s.cluster import Refused, until

NAMESPACE = "rs-jails-admission"


@pytest.fixture(scope="module")
def jailed(cluster, tmp_path_factory):
    """The pods of sandbox and verifier, and the namespace with its policy at work."""
    folder = tmp_path_factory.mktemp("admission")
    places = [K8S / "base" / "jails", K8S / "components" / "jails-admission"]
    base, component = (os.path.relpath(place, folder) for place in places)
    kustomization = {"namespace": NAMESPACE, "resources": [base], "components": [component]}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    things = parse(cluster.kubectl("kustomize", str(folder)))
    kinds = ("Namespace", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    policy = yaml.safe_dump_all(of_kind(things, *kinds))
    pods = {name_of(t): dict(template(t)["spec"], serviceAccountName="default") for t in of_kind(things, "Deployment")}
    cluster.kubectl("apply", "-f", "-", given=policy)
    try:
        # A policy is at work a moment after it is there.
        refused = {**pods["sandbox"], "hostPID": True}
        until(lambda: asked(cluster, refused), 60, "the policy refusing a pod", every_s=1)
        yield pods
    finally:
        cluster.kubectl("delete", "--wait=false", "-f", "-", given=policy)


def asked(cluster, spec):
    """What the server says against a pod; the empty string: it would take it."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "tried", "namespace": NAMESPACE}, "spec": spec}
    try:
        cluster.kubectl("create", "--dry-run=server", "-f", "-", given=json.dumps(pod))
    except Refused as refused:
        return str(refused)
    return ""


@pytest.mark.parametrize("service", ["sandbox", "verifier"])
def test_our_pods_pass(cluster, jailed, service):
    assert asked(cluster, jailed[service]) == ""


def changed(spec, pod=(), container=(), **more):
    made = copy.deepcopy(spec)
    made["securityContext"].update(dict(pod))
    made["containers"][0]["securityContext"].update(dict(container))
    made.update(more)
    return made


BEYOND = {
    "the node's network": {"hostNetwork": True},
    "the node's files": {"volumes": [{"name": "tmp", "hostPath": {"path": "/"}}, {"name": "etc", "emptyDir": {}}]},
    "root": {"pod": {"runAsNonRoot": False, "runAsUser": 0}},
    "root in its container": {"container": {"runAsUser": 0}},
    "privilege": {"container": {"privileged": True, "allowPrivilegeEscalation": True}},
    "a capability": {"container": {"capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]}}},
    "undropped capabilities": {"container": {"capabilities": {}}},
    "escalation": {"container": {"allowPrivilegeEscalation": True}},
    "the kernel's settings": {"pod": {"sysctls": [{"name": "kernel.shm_rmid_forced", "value": "0"}]}},
}


@pytest.mark.parametrize("what", BEYOND)
def test_what_is_beyond_them_is_refused(cluster, jailed, what):
    assert "rollstream-jails" in asked(cluster, changed(jailed["sandbox"], **BEYOND[what]))
