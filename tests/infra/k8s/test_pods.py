"""Every pod of every overlay: what it may, what it is given, how it is watched and how it ends."""

import dataclasses
from types import SimpleNamespace

import pytest

from infra.local.stack import SERVICES
from services.runtime.jail.announce import crowded
from services.sandbox.main import limits as sandbox_limits
from services.verifier.main import bounds
from tests.infra.k8s.render import (
    OVERLAYS,
    POD_KINDS,
    containers,
    is_service,
    name_of,
    of_kind,
    overlay,
    services,
    settings,
    template,
)

JAILED = {"sandbox", "verifier"}
SINGLETONS = {"dispatch", "trainer", "gate"}


@dataclasses.dataclass
class Workload:
    """One of them, with the overlay's name for messages."""

    overlay: str
    object: dict

    def __str__(self):
        return f"{self.overlay}: {name_of(self.object)}"


def workloads():
    for name in OVERLAYS:
        for found in of_kind(overlay(name), *POD_KINDS):
            yield Workload(name, found)


@pytest.fixture(scope="module")
def every():
    found = list(workloads())
    assert len(found) > 4 * 10
    return found


@pytest.mark.parametrize("name", OVERLAYS)
def test_there_is_a_workload_for_every_service_and_for_nothing_else(name):
    assert services(overlay(name)).keys() == set(SERVICES)


def test_no_pod_has_more_than_the_restricted_standard_but_the_named_exceptions(every):
    """The cluster enforces it by label; this says which pod, and what, without a cluster."""
    for workload in every:
        spec = template(workload.object)["spec"]
        pod = spec["securityContext"]
        assert pod["runAsNonRoot"] is True, workload
        assert pod["runAsUser"] > 0, workload
        for key in ("hostNetwork", "hostPID", "hostIPC"):
            assert key not in spec, workload
        assert {next(k for k in v if k != "name") for v in spec["volumes"]} <= {
            "emptyDir", "projected", "configMap", "secret",
        }, workload  # fmt: skip
        exceptions = {key for key in ("seccompProfile", "appArmorProfile") if pod.get(key) == {"type": "Unconfined"}}
        jailed = name_of(workload.object) in JAILED and workload.overlay != "production"
        assert exceptions == ({"seccompProfile", "appArmorProfile"} if jailed else set()), workload
        for container in containers(workload.object):
            held = container["securityContext"]
            assert held["allowPrivilegeEscalation"] is False, workload
            assert held["readOnlyRootFilesystem"] is True, workload
            assert held["capabilities"] == {"drop": ["ALL"]}, workload
            assert not held.get("privileged"), workload
            assert "seccompProfile" not in held, workload


@pytest.mark.parametrize("name", OVERLAYS)
def test_namespaces_say_what_is_enforced(name):
    enforced = {
        name_of(o): o["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
        for o in of_kind(overlay(name), "Namespace")
    }
    assert enforced["rollstream"] == "restricted"
    # Under gVisor nothing is excepted; baseline already forbids what the others are.
    assert enforced["rollstream-sandbox"] == ("restricted" if name == "production" else "privileged")
    homes = {service: o["metadata"]["namespace"] for service, o in services(overlay(name)).items()}
    assert {s for s, home in homes.items() if home == "rollstream-sandbox"} == JAILED


def test_no_pod_can_speak_to_the_api_server(every):
    accounts = {}
    for workload in every:
        spec = template(workload.object)["spec"]
        assert spec["automountServiceAccountToken"] is False, workload
        assert spec["enableServiceLinks"] is False, workload
        accounts.setdefault((workload.overlay, spec["serviceAccountName"]), []).append(name_of(workload.object))
    assert all(users == [account] for (_, account), users in accounts.items()), accounts
    for name in OVERLAYS:
        made = of_kind(overlay(name), "ServiceAccount")
        assert {name_of(o) for o in made} == {account for where, account in accounts if where == name}
        assert all(o["automountServiceAccountToken"] is False for o in made)
        assert not of_kind(overlay(name), "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")


def test_every_container_says_what_it_needs_and_gets_at_most(every):
    for workload in every:
        for container in containers(workload.object):
            for kind in ("requests", "limits"):
                assert container["resources"][kind].keys() >= {"cpu", "memory"}, workload
    scratch = [v for w in every for v in template(w.object)["spec"]["volumes"] if v["name"] == "tmp"]
    assert all("sizeLimit" in volume["emptyDir"] for volume in scratch)


@pytest.mark.parametrize("name", OVERLAYS)
def test_the_jails_fit_into_the_memory_of_their_pod(name, tmp_path):
    """By the services' own reckoning at their start, in a pod without counters of its own for each jail."""
    found = settings(overlay(name), tmp_path)
    sandbox, verifier = found.sandbox, found.verifier
    jails = {
        "sandbox": (sandbox_limits(sandbox), sandbox.workers, sandbox.workspaces + 2 * sandbox.workers + sandbox.pool),
        "verifier": (bounds(verifier).limits, verifier.workers, 2 * verifier.workers),
    }
    for service, (limits, busy, slots) in jails.items():
        (container,) = template(services(overlay(name))[service])["spec"]["containers"]
        wall = int(container["resources"]["limits"]["memory"].removesuffix("Gi")) << 30
        around = SimpleNamespace(walled=True, memory_limit=lambda wall=wall: wall)
        assert crowded(SimpleNamespace(surroundings=around, evidence="sampled"), limits, busy, slots, "") is None, (
            service
        )


def test_probes_mean_what_they_say(every):
    for workload in every:
        if workload.object["kind"] == "Job":
            continue
        for container in template(workload.object)["spec"]["containers"]:
            assert container.keys() >= {"startupProbe", "readinessProbe", "livenessProbe"}, workload
        if is_service(workload.object):
            (container,) = template(workload.object)["spec"]["containers"]
            paths = {
                kind: container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "readiness", "liveness")
            }
            assert paths == {
                "startup": "/healthz/live", "readiness": "/healthz/ready", "liveness": "/healthz/live",
            }, workload  # fmt: skip
            assert {p["name"]: p["containerPort"] for p in container["ports"]} == {"health": 8080}
            startup = container["startupProbe"]
            # Importing torch on a busy machine; whatever comes after is liveness's, which waits and replays keep alive.
            assert startup["periodSeconds"] * startup["failureThreshold"] >= 300, workload


@pytest.mark.parametrize("name", OVERLAYS)
def test_the_grace_period_is_longer_than_the_longest_drain(name, tmp_path):
    longest = settings(overlay(name), tmp_path).runtime.grace_s
    for service, workload in services(overlay(name)).items():
        assert template(workload)["spec"]["terminationGracePeriodSeconds"] >= longest + 5, service


@pytest.mark.parametrize("name", OVERLAYS)
def test_of_a_singleton_there_is_one_and_no_second_before_the_first_is_gone(name):
    for service, workload in services(overlay(name)).items():
        assert workload["kind"] == ("StatefulSet" if service in SINGLETONS else "Deployment"), service
        if service in SINGLETONS:
            assert workload["spec"]["replicas"] == 1
            assert workload["spec"]["podManagementPolicy"] == "Parallel"
    scaled = {o["spec"]["scaleTargetRef"]["name"] for o in of_kind(overlay(name), "ScaledObject")}
    assert not scaled & SINGLETONS


@pytest.mark.parametrize("name", OVERLAYS)
def test_disruption_budgets_and_spread_select_the_pods_they_are_for(name):
    budgets = {name_of(o): o["spec"] for o in of_kind(overlay(name), "PodDisruptionBudget")}
    assert budgets.keys() == set(SERVICES)
    for service, workload in services(overlay(name)).items():
        labels = template(workload)["metadata"]["labels"]
        assert budgets[service]["maxUnavailable"] == 1
        assert budgets[service]["selector"]["matchLabels"].items() <= labels.items()
        assert workload["spec"]["selector"]["matchLabels"].items() <= labels.items()
        spread = template(workload)["spec"]["topologySpreadConstraints"]
        assert {c["topologyKey"] for c in spread} == {"kubernetes.io/hostname", "topology.kubernetes.io/zone"}
        for constraint in spread:
            assert constraint["labelSelector"]["matchLabels"].items() <= labels.items()
            assert set(constraint["matchLabelKeys"]) <= labels.keys()


@pytest.mark.parametrize("name", OVERLAYS)
def test_a_service_runs_its_own_image_as_itself(name):
    for service, workload in services(overlay(name)).items():
        (container,) = template(workload)["spec"]["containers"]
        assert container["name"] == "service"
        assert container["image"] == f"rollstream-{service}:dev"
        assert container["args"][:3] == ["up", "--service", service]
        assert "command" not in container


def test_prepare_stops_at_what_a_person_must_mend(every):
    jobs = [w.object for w in every if w.object["kind"] == "Job"]
    assert len(jobs) == len(OVERLAYS)
    for job in jobs:
        assert name_of(job) == "prepare"
        (rule,) = job["spec"]["podFailurePolicy"]["rules"]
        assert rule["action"] == "FailJob"
        assert rule["onExitCodes"]["values"] == [2]
        assert template(job)["spec"]["restartPolicy"] == "Never"  # which a failure policy asks for
