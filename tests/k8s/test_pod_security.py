"""The pods of every overlay before the Pod Security admission of a real API server, by the labels of namespaces."""

import json
import re

import pytest

from tests.infra.k8s.render import K8S, OVERLAYS, POD_KINDS, name_of, of_kind, parse, template
from tests.k8s.cluster import Refused

LEVELS = ("restricted", "baseline")
JAILED = {"sandbox", "verifier"}
EXCEPTIONS = ("seccompProfile", "appArmorProfile")


@pytest.fixture(scope="module")
def level(cluster):
    """A namespace for each level that refuses what is beyond it."""
    made = {name: f"rs-{name}" for name in LEVELS}
    labels = {name: {"pod-security.kubernetes.io/enforce": name} for name in LEVELS}
    for name, namespace in made.items():
        thing = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels[name]}}
        cluster.kubectl("apply", "-f", "-", given=json.dumps(thing))
    yield made
    cluster.kubectl("delete", "namespace", "--wait=false", *made.values())


@pytest.fixture(scope="module")
def pods(cluster):
    """(overlay, workload) -> a pod as the workload's controller would make it."""
    found = {}
    for overlay in OVERLAYS:
        for thing in of_kind(parse(cluster.kubectl("kustomize", str(K8S / "overlays" / overlay))), *POD_KINDS):
            spec = dict(template(thing)["spec"], serviceAccountName="default")
            spec.pop("runtimeClassName", None)  # the class is not there; this standard does not ask for it
            found[overlay, name_of(thing)] = {"apiVersion": "v1", "kind": "Pod", "spec": spec}
    return found


def refusals(cluster, namespace, pods):
    """Name -> what the server says against that pod, of those that it would not take."""
    named = [{**pod, "metadata": {"name": name, "namespace": namespace}} for name, pod in pods.items()]
    things = {"apiVersion": "v1", "kind": "List", "items": named}
    try:
        cluster.kubectl("create", "--dry-run=server", "-f", "-", given=json.dumps(things), timeout_s=60)
    except Refused as refused:
        return dict(re.findall(r'pods "([^"]+)" is forbidden: (.*)', str(refused)))
    return {}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_pod_but_the_jails_passes_the_restricted_standard(cluster, level, pods, overlay):
    mine = {service: pod for (where, service), pod in pods.items() if where == overlay}
    said = refusals(cluster, level["restricted"], mine)
    assert said.keys() == (set() if overlay == "production" else JAILED), said
    assert all('violates PodSecurity "restricted:latest"' in text for text in said.values())


@pytest.mark.parametrize("service", sorted(JAILED))
def test_the_exceptions_of_the_jails_are_those_two_and_no_others(cluster, level, pods, service):
    """Each of them is beyond baseline already, and without them the pod is within restricted."""
    pod = pods["laptop", service]
    spec = pod["spec"]
    held = {key: value for key, value in spec["securityContext"].items() if key not in EXCEPTIONS}
    held["seccompProfile"] = {"type": "RuntimeDefault"}

    def trial(**more):
        return {**pod, "spec": {**spec, "securityContext": {**held, **more}}}

    assert refusals(cluster, level["restricted"], {"without": trial()}) == {}
    each = {key.lower(): trial(**{key: {"type": "Unconfined"}}) for key in EXCEPTIONS}
    assert refusals(cluster, level["baseline"], each).keys() == each.keys()
