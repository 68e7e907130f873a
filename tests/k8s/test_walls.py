"""Who may reach whom, tried from inside the pods: every wall is shown to stand, and every probe to be alive."""

import contextlib
import json
import subprocess

import pytest

from services.runtime.store_rights import HIDDEN_RIGHTS, RIGHTS
from tests.k8s.cluster import Refused, end, spawn, until
from tests.k8s.probes import OPEN, Target, connections, python
from tests.k8s.run import SERVICES

WORLD_PORT = 8099
STRANGERS = "rs-strangers"
"""A namespace that has nothing to do with ours; no policy keeps its pods from calling anywhere."""
JAILED = ("sandbox", "verifier")


@pytest.fixture(scope="module")
def node(run):
    addresses = run.cluster.get("nodes")["items"][0]["status"]["addresses"]
    return next(a["address"] for a in addresses if a["type"] == "InternalIP")


@pytest.fixture(scope="module")
def world(run, node):
    """A server beside the cluster, on an address that is no pod's and no service's: it stands for the internet."""
    line = run.cluster.line("exec", "python3", "-m", "http.server", "--bind", node, str(WORLD_PORT))
    server = spawn(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    yield Target("the internet", node, WORLD_PORT)
    end(server)


def bystander(cluster, namespace, name):
    """A pod that only waits, in an image of ours, without any label of ours."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "securityContext": {
                "runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [
                {
                    "name": "c",
                    "image": "rollstream-closure:dev",
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["python", "-c", "import time; time.sleep(3600)"],
                    "securityContext": {
                        "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]},
                    },
                }
            ],
        },
    }  # fmt: skip
    cluster.kubectl("apply", "-f", "-", given=json.dumps(pod))


@pytest.fixture(scope="module")
def bystanders(run, namespaces):
    """(namespace, pod) of a stranger, and of a pod of our own namespace that carries none of our labels."""
    ours = namespaces[0]
    with contextlib.suppress(Refused):
        run.cluster.kubectl("create", "namespace", STRANGERS)
    pods = [(STRANGERS, "stranger"), (ours, "unlabelled")]
    for namespace, name in pods:
        bystander(run.cluster, namespace, name)
    for namespace, name in pods:
        run.cluster.kubectl(
            "-n", namespace, "wait", "--for=condition=Ready", f"pod/{name}", "--timeout=60s", timeout_s=70
        )
    yield pods
    for namespace, name in pods:
        run.cluster.kubectl("-n", namespace, "delete", "pod", name, "--wait=false")


@pytest.fixture(scope="module")
def targets(run, namespaces, node, world):
    """Everything that is tried from everywhere."""
    ours = namespaces[0]
    closure, sandbox = run.pod("closure"), run.pod("sandbox")
    return [
        Target("kafka", f"kafka.{ours}.svc", 9092),
        Target("store", f"store.{ours}.svc", 7070),
        Target("hidden store", f"hidden-store.{ours}.svc", 7070),
        Target("closure's port", closure.ip, 8080),
        Target("sandbox's port", sandbox.ip, 8080),
        Target("the API server", "kubernetes.default.svc", 443),
        Target("the node's API server", node, 6443),
        Target("the kubelet", node, 10250),
        world,
    ]


def test_a_stranger_reaches_the_world_but_nothing_of_ours(run, bystanders, targets):
    namespace, pod = bystanders[0]
    # A new pod is known to the policies a moment after it is ready.
    allowed = {"the API server", "the node's API server", "the kubelet", "the internet"}

    def as_it_should():
        found = connections(run.cluster, namespace, pod, targets)
        return {name for name, said in found.items() if said == OPEN} == allowed or found

    assert until(lambda: as_it_should() is True, 30, f"a stranger who reaches {sorted(allowed)} alone")


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_reaches_what_it_reads_and_writes_and_nothing_else(run, targets, service):
    if service not in run.workloads:
        pytest.skip(f"{service} is not deployed")
    pod = run.pod(service)
    allowed = {"kafka"}
    allowed |= {"store"} if service in RIGHTS else set()
    allowed |= {"hidden store"} if service in HIDDEN_RIGHTS else set()
    aimed = [target for target in targets if target.host != pod.ip]
    found = connections(run.cluster, pod.namespace, pod.name, aimed)
    assert {name for name, said in found.items() if said == OPEN} == allowed, found
    assert not any(said.startswith("no such name") for said in found.values()), found


def test_a_pod_of_ours_without_a_label_reaches_nothing(run, bystanders, targets):
    namespace, pod = bystanders[1]
    found = connections(run.cluster, namespace, pod, targets)
    assert not [name for name, said in found.items() if said == OPEN], found


def test_no_pod_holds_a_token_of_the_api_server(run):
    look = "import os; print(os.path.exists('/var/run/secrets/kubernetes.io'))"
    for service in run.workloads:
        pod = run.pod(service)
        assert python(run.cluster, pod.namespace, pod.name, look).strip() == "False", service


SECRETS = """
import json, os
print(json.dumps([os.environ.get(f"ROLLSTREAM_{s}__SECRET_KEY", "") for s in ("STORE", "HIDDEN_STORE")]))
"""
HIDDEN = """
import json, os, sys
from minio import Minio
from minio.error import S3Error
from services.runtime.settings import load
from pathlib import Path
settings = load(Path(os.environ["ROLLSTREAM_CONFIG"]))
section = settings.hidden_store
bucket, _, prefix = section.url.removeprefix("s3://").partition("/")
client = Minio(section.endpoint, sys.argv[1], sys.argv[2], secure=False, region=section.region)
try:
    names = [o.object_name for o in client.list_objects(bucket, prefix, recursive=True)]
    print("read", len([client.get_object(bucket, name).read() for name in names if name.endswith("hidden.json")]))
except S3Error as error:
    print("refused", error.code)
"""


def test_the_samplers_login_opens_no_hidden_check(run):
    """Even from where the hidden store can be reached: the network is one wall, the login another."""
    held = {}
    for service in ("sampler", "verifier"):
        pod = run.pod(service)
        held[service] = json.loads(python(run.cluster, pod.namespace, pod.name, SECRETS))
    assert held["sampler"][0]
    assert not held["sampler"][1]
    verifier = run.pod("verifier")

    def tried(user, secret):
        return python(run.cluster, verifier.namespace, verifier.name, HIDDEN, user, secret).split()

    assert tried("verifier", held["verifier"][1]) == ["read", "1"]
    verdict, why = tried("sampler", held["sampler"][0])
    assert verdict == "refused", why


def violations(cluster, namespace, spec):
    """What the namespace's Pod Security Standard says against a pod, as one text; empty when it is admitted."""
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe", "namespace": namespace}, "spec": spec}
    try:
        cluster.kubectl("create", "--dry-run=server", "-f", "-", given=json.dumps(pod))
    except Refused as refused:
        _, against, said = str(refused).partition("violates PodSecurity")
        if not against:
            raise
        return said
    return ""


POINTS = (
    "seccompProfile", "AppArmor", "privileged", "capabilities", "allowPrivilegeEscalation", "runAsNonRoot", "runAsUser",
    "hostPath", "host namespaces", "procMount", "sysctls", "restricted volume types", "seLinuxOptions",
)  # fmt: skip
"""What the standard's checks call themselves in a refusal."""


def template(run, service):
    workload = run.workloads[service]
    spec = run.cluster.get("-n", workload.namespace, workload.name)["spec"]["template"]["spec"]
    return {**spec, "serviceAccountName": "default"}


@pytest.mark.parametrize("service", JAILED)
def test_the_jails_go_beyond_it_in_two_named_points(run, namespaces, service):
    said = violations(run.cluster, namespaces[0], template(run, service))
    assert "seccompProfile" in said
    named = {point for point in POINTS if point in said.partition(":")[2]}
    run.table.note(f"{service} goes beyond the restricted standard in: {', '.join(sorted(named))}")
    assert named <= {"seccompProfile", "AppArmor"}, said
