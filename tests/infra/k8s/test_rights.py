"""Networks, logins and scaling follow the declarations: who reads and writes what stands in one place."""

import json
import os
from base64 import b64decode

import pytest

from infra.local.stack import SERVICES
from schemas.access import OPERATOR, group_of, principals
from schemas.topics import BY_NAME
from services.runtime.store_rights import HIDDEN_RIGHTS, RIGHTS, policies
from tests.infra.k8s.render import (
    K8S,
    OVERLAYS,
    build,
    containers,
    environment,
    name_of,
    of_kind,
    overlay,
    parse,
    run_toml,
    services,
    settings,
    template,
)

PART_OF = {"app.kubernetes.io/part-of": "rollstream"}
SERVERS = ("kafka", "store", "hidden-store")
LAPTOPS = [name for name in OVERLAYS if name.startswith("laptop")]


def principal_of(workload):
    """Who a workload logs in as."""
    return OPERATOR if name_of(workload) == "prepare" else name_of(workload)


def ours(name):
    """Services and the preparation."""
    return [*services(overlay(name)).values(), *of_kind(overlay(name), "Job")]


@pytest.mark.parametrize("name", OVERLAYS)
def test_the_settings_load_and_are_the_same_in_every_namespace(name, tmp_path):
    found = settings(overlay(name), tmp_path)
    assert found.run_id == name.removesuffix("-keda")
    assert len(run_toml(overlay(name))) == 1
    made = [o for o in of_kind(overlay(name), "ConfigMap") if "run.toml" in o["data"]]
    assert {o["metadata"]["namespace"] for o in made} == {"rollstream", "rollstream-sandbox"}
    (digest,) = {name_of(o) for o in made}  # the digest in its name rolls every service to other settings
    for workload in ours(name):
        (etc,) = [v["projected"]["sources"] for v in template(workload)["spec"]["volumes"] if v["name"] == "etc"]
        assert etc[0] == {"configMap": {"name": digest}}
        assert environment(workload)["ROLLSTREAM_CONFIG"]["value"] == "/etc/rollstream/run.toml"


@pytest.mark.parametrize("name", OVERLAYS)
def test_pods_are_clients_of_what_their_service_has_rights_on(name):
    for workload in ours(name):
        labels = template(workload)["metadata"]["labels"]
        principal = principal_of(workload)
        wanted = {
            "rollstream/kafka": principal in principals(),
            "rollstream/store": principal in RIGHTS,
            "rollstream/hidden-store": principal in HIDDEN_RIGHTS,
        }
        assert {key for key in labels if key.startswith("rollstream/")} == {k for k, v in wanted.items() if v}, (
            principal
        )
        assert all(labels[key] == "client" for key, held in wanted.items() if held)


@pytest.mark.parametrize("name", OVERLAYS)
def test_pods_get_their_own_logins_and_no_others(name):
    for workload in ours(name):
        principal = principal_of(workload)
        secret = {
            variable: value["valueFrom"]["secretKeyRef"]
            for variable, value in environment(workload).items()
            if "secretKeyRef" in value.get("valueFrom", {})
        }
        wanted = {"ROLLSTREAM_KAFKA__PASSWORD": f"rollstream-{principal}"}
        for section, rights, kind in (("STORE", RIGHTS, "store"), ("HIDDEN_STORE", HIDDEN_RIGHTS, "hidden-store")):
            if principal in rights:
                for key in ("ACCESS_KEY", "SECRET_KEY"):
                    wanted[f"ROLLSTREAM_{section}__{key}"] = f"rollstream-{principal}-{kind}"
        assert secret.keys() == wanted.keys(), principal
        for variable, reference in secret.items():
            # On the laptop a digest of the content follows the name.
            assert reference["name"].startswith(wanted[variable]), principal
            assert reference["name"].removeprefix(wanted[variable]).count("-") <= 1, principal
            assert reference["optional"] is True, principal
        assert not [c for c in containers(workload) if "envFrom" in c]


def policy(name, namespace, policy_name):
    (found,) = [
        o["spec"]
        for o in of_kind(overlay(name), "NetworkPolicy")
        if name_of(o) == policy_name and o["metadata"]["namespace"] == namespace
    ]
    return found


@pytest.mark.parametrize("namespace", ["rollstream", "rollstream-sandbox"])
@pytest.mark.parametrize("name", OVERLAYS)
def test_nothing_is_open_but_what_is_named(name, namespace):
    denied = policy(name, namespace, "deny-all")
    assert denied == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    opened = [o for o in of_kind(overlay(name), "NetworkPolicy") if o["metadata"]["namespace"] == namespace]
    for o in opened:
        for rule in o["spec"].get("ingress", ()):
            assert rule["from"], name_of(o)
            assert rule["ports"], name_of(o)
        for rule in o["spec"].get("egress", ()):
            assert rule["ports"], name_of(o)
            assert rule.get("to") or name_of(o) == "dns", name_of(o)
    for server in SERVERS:
        out = policy(name, namespace, f"to-{server}")
        assert out["podSelector"]["matchLabels"] == {f"rollstream/{server}": "client"}
        for rule in out["egress"]:
            for peer in rule["to"]:
                if "ipBlock" in peer:
                    assert peer["ipBlock"]["cidr"] == "203.0.113.0/24"  # nobody's, until an overlay says whose
                else:
                    assert peer["podSelector"]["matchLabels"] == {f"rollstream/{server}": "server"}
                    assert peer["namespaceSelector"]["matchLabels"] == PART_OF
    metrics = policy(name, namespace, "metrics")
    (rule,) = metrics["ingress"]
    assert [p["port"] for p in rule["ports"]] == [8080]
    assert [p["podSelector"]["matchLabels"] for p in rule["from"]] == [{"app.kubernetes.io/name": "prometheus"}]


@pytest.mark.parametrize("name", OVERLAYS)
def test_policies_know_namespaces_by_label_and_every_namespace_of_ours_has_it(name):
    assert all(PART_OF.items() <= o["metadata"]["labels"].items() for o in of_kind(overlay(name), "Namespace"))


@pytest.mark.parametrize("name", LAPTOPS)
def test_the_laptops_servers_take_their_clients_and_keda_alone(name):
    for server in SERVERS:
        (rule,) = policy(name, "rollstream", server)["ingress"]
        client = {"matchLabels": {f"rollstream/{server}": "client"}}
        assert rule["from"] == [{"namespaceSelector": {"matchLabels": PART_OF}, "podSelector": client}]
        (workload,) = [o for o in of_kind(overlay(name), "StatefulSet") if name_of(o) == server]
        labels = template(workload)["metadata"]["labels"]
        assert {k: v for k, v in labels.items() if k.startswith("rollstream/")} == {f"rollstream/{server}": "server"}


@pytest.mark.parametrize("name", LAPTOPS)
def test_the_laptops_logins_are_those_that_its_servers_know(name, tmp_path):
    secrets = {}
    for o in of_kind(overlay(name), "Secret"):
        content = {key: b64decode(value).decode() for key, value in o["data"].items()}
        secrets[name_of(o)] = content
    found = settings(overlay(name), tmp_path)
    assert policies(found)  # every service a login of its own, hidden checks a bucket of their own
    for server, rights, section in (
        ("store", RIGHTS, found.store),
        ("hidden-store", HIDDEN_RIGHTS, found.hidden_store),
    ):
        (known,) = [c for n, c in secrets.items() if n.startswith(f"{server}-")]
        users = {n: u["secret"] for n, u in json.loads(known["users.json"])["accessAccounts"].items()}
        users[OPERATOR] = known["root-secret-key"]
        assert users.keys() == rights.keys()
        assert len(set(users.values())) == len(users)
        assert section.access_key == "{service}"
        for service, secret in users.items():
            given = {c["secret-key"] for n, c in secrets.items() if n.startswith(f"rollstream-{service}-{server}-")}
            assert given == {secret}, service


@pytest.mark.parametrize("name", [n for n in OVERLAYS if n.endswith("-keda") or n == "production"])
def test_keda_looks_at_what_the_run_really_reads(name, tmp_path):
    found = settings(overlay(name), tmp_path)
    objects = of_kind(overlay(name), "ScaledObject")
    assert {name_of(o) for o in objects} == {"sampler", "sandbox", "verifier"}
    for o in objects:
        service = o["spec"]["scaleTargetRef"]["name"]
        workload = services(overlay(name))[service]
        assert o["metadata"]["namespace"] == workload["metadata"]["namespace"]
        assert "replicas" not in workload["spec"], "an apply would put the number back"
        (trigger,) = o["spec"]["triggers"]
        seen = trigger["metadata"]
        assert seen["consumerGroup"] == group_of(found.run_id, service)
        assert seen["bootstrapServers"] == found.kafka.bootstrap
        assert service in BY_NAME[seen["topic"]].consumers
        assert o["spec"]["maxReplicaCount"] <= found.kafka.partitions
        assert (seen.get("tls") == "enable") is found.kafka.tls
        assert (seen.get("sasl") == "scram_sha512") is (found.kafka.mechanism == "SCRAM-SHA-512")
        assert ("authenticationRef" in trigger) is bool(found.kafka.mechanism)


def test_every_secret_of_production_is_listed_as_an_example(tmp_path):
    """Who deploys must find every name; and no further one, which would only confuse."""
    wanted = {"services": set(), "jails": set()}
    for workload in ours("production"):
        part = "jails" if workload["metadata"]["namespace"] == "rollstream-sandbox" else "services"
        for value in environment(workload).values():
            if reference := value.get("valueFrom", {}).get("secretKeyRef"):
                wanted[part].add((reference["name"], reference["key"]))
        for volume in template(workload)["spec"]["volumes"]:
            for source in volume.get("projected", {}).get("sources", ()):
                if "secret" in source:
                    wanted[part] |= {(source["secret"]["name"], i["key"]) for i in source["secret"]["items"]}
    for part in wanted:
        wanted[part] |= {("rollstream-keda", key) for key in ("username", "password", "ca")}
    wanted["services"].add(("rollstream-monitor", "password"))  # of components/toolbox
    for part, names in wanted.items():
        folder = tmp_path / part
        folder.mkdir()
        relative = os.path.relpath(K8S / "components" / "secrets-example" / part, folder)
        (folder / "kustomization.yaml").write_text(f"components: [{relative}]\n")
        made = {(name_of(o), key) for o in parse(build(folder)) for key in o["data"]}
        assert made == names


def test_all_services_are_known_here():
    assert set(SERVICES) | {OPERATOR, "monitor"} == set(principals())
