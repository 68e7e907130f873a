"""What an overlay of anybody's own can do: take any component, and give every fixed name another one."""

import functools
import os
import re
import tempfile
from pathlib import Path

import pytest

from tests.infra.k8s.render import (
    K8S,
    OVERLAYS,
    POD_KINDS,
    ROOT,
    build,
    containers,
    name_of,
    of_kind,
    overlay,
    parse,
    services,
    template,
)

COMPONENTS = K8S / "components"
BOTH = ("services", "jails")
NEEDS = {
    "keda-sasl": {part: [f"keda/{part}"] for part in BOTH},
    "alerts": {"services": []},
    "backup": {"services": []},
    "gpu": {"services": []},
    "gvisor": {"jails": []},
    "gvisor/runtimeclass": {"jails": ["gvisor"]},
    "jails-admission": {"jails": []},
    "keda/services": {"services": []},
    "keda/jails": {"jails": []},
    "persistent": {"laptop": []},
    "privileged-sandbox": {"jails": []},
    "seccomp-localhost": {"jails": []},
    "secrets-example/services": {"services": []},
    "secrets-example/jails": {"jails": []},
    "strimzi": {"kafka": []},
    "toolbox": {"services": []},
    "user-namespaces": {"jails": []},
}
"""Where a component belongs that does not suit both parts as it is, and what comes before it there."""
BASES = {
    "services": K8S / "base" / "services",
    "jails": K8S / "base" / "jails",
    "laptop": K8S / "overlays" / "laptop" / "services",
}


@functools.cache
def plain(base):
    return parse(build(BASES[base])) if base else []


def components():
    return sorted(p.parent.relative_to(COMPONENTS).as_posix() for p in COMPONENTS.rglob("kustomization.yaml"))


@functools.cache
def build_with(base, *names):
    """The objects of a base with components, as an overlay of one's own brings them together."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        text = f"components: [{', '.join(os.path.relpath(COMPONENTS / name, folder) for name in names)}]\n"
        if base:
            text += f"resources: [{os.path.relpath(BASES[base], folder)}]\n"
        (folder / "kustomization.yaml").write_text(text)
        return parse(build(folder))


def test_every_component_has_its_place_here():
    assert NEEDS.keys() <= set(components())


@pytest.mark.parametrize("component", components())
def test_a_component_fits_the_base_that_it_is_made_for(component):
    for part, before in NEEDS.get(component, {part: [] for part in BOTH}).items():
        base = None if part == "kafka" else part
        without = build_with(base, *before) if before else plain(base)
        found = build_with(base, *before, component)
        assert found != without, f"{component} changes nothing in {part}"
        assert {(o["kind"], name_of(o)) for o in without} <= {(o["kind"], name_of(o)) for o in found}


def jailed(objects):
    return [o for o in of_kind(objects, "Deployment") if name_of(o) in ("sandbox", "verifier")]


def test_stronger_jails_are_what_they_say():
    for o in jailed(build_with("jails", "privileged-sandbox")):
        (container,) = containers(o)
        assert container["securityContext"] == {
            "privileged": True, "allowPrivilegeEscalation": True, "readOnlyRootFilesystem": True,
        }  # fmt: skip
        assert template(o)["spec"]["securityContext"]["runAsUser"] == 0
    for o in jailed(build_with("jails", "user-namespaces")):
        assert template(o)["spec"]["hostUsers"] is False
        assert next(containers(o))["securityContext"]["procMount"] == "Unmasked"
    for component in ("gvisor", "seccomp-localhost"):
        found = build_with("jails", component)
        (namespace,) = of_kind(found, "Namespace")
        assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
        for o in jailed(found):
            pod = template(o)["spec"]["securityContext"]
            assert pod["seccompProfile"]["type"] in ("RuntimeDefault", "Localhost")
            assert "appArmorProfile" not in pod


def test_a_gpu_for_sampler_and_trainer():
    found = build_with("services", "gpu")
    for o in of_kind(found, "Deployment", "StatefulSet"):
        spec = template(o)["spec"]
        wanted = name_of(o) in ("sampler", "trainer")
        assert ("nvidia.com/gpu" in spec["containers"][0]["resources"]["limits"]) is wanted, name_of(o)
        assert bool(spec.get("nodeSelector")) is bool(spec.get("tolerations")) is wanted
    (sampler,) = [o for o in of_kind(found, "Deployment") if name_of(o) == "sampler"]
    assert sampler["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}


def test_disks_take_the_place_of_what_a_pod_forgets():
    found = build_with("laptop", "persistent")
    for name in ("kafka", "store", "hidden-store"):
        (o,) = [o for o in of_kind(found, "StatefulSet") if name_of(o) == name]
        (claim,) = o["spec"]["volumeClaimTemplates"]
        assert "storageClassName" not in claim["spec"]
        mounted = {m["name"] for c in containers(o) for m in c["volumeMounts"]}
        volumes = {v["name"] for v in template(o)["spec"]["volumes"]}
        assert claim["metadata"]["name"] == "data"
        assert mounted == volumes | {"data"}
        assert "data" not in volumes


def renamed(folder, name):
    """An overlay of one's own over `name`: other namespaces, registry and settings."""
    source = K8S / "overlays" / name
    parts = [p for p in ("services", "jails", "kafka") if (source / p / "namespace.yaml").exists() or p in BOTH]
    (folder / "settings").mkdir()
    found = next(o for o in of_kind(overlay(name), "ConfigMap") if "run.toml" in o["data"])
    other = (
        found["data"]["run.toml"]
        .replace("rollstream-kafka.svc", "ours-kafka.svc")
        .replace("rollstream.svc", "ours.svc")
    )
    (folder / "settings" / "run.toml").write_text(other)
    (folder / "settings" / "kustomization.yaml").write_text(
        "kind: Component\napiVersion: kustomize.config.k8s.io/v1alpha1\n"
        "configMapGenerator: [{name: rollstream-run, behavior: replace, files: [run.toml]}]\n"
    )
    for part in parts:
        (folder / part).mkdir()
        namespace = {"services": "ours", "jails": "ours-jails", "kafka": "ours-kafka"}[part]
        text = f"namespace: {namespace}\nresources: [{os.path.relpath(source / part, folder / part)}]\n"
        if part != "kafka":
            text += "components: [../settings]\n"
            text += "patches: [{target: {kind: ScaledObject}, path: address.yaml}]\n"
            (folder / part / "address.yaml").write_text(
                "- {op: replace, path: /spec/triggers/0/metadata/bootstrapServers, value: kafka.ours.svc}\n"
            )
        (folder / part / "kustomization.yaml").write_text(text)
    images = {c["image"].partition(":")[0] for o in of_kind(overlay(name), *POD_KINDS) for c in containers(o)}
    lines = [f"  - {{name: {image}, newName: registry.ours/{image}, newTag: v7}}" for image in sorted(images)]
    text = f"resources: [{', '.join(parts)}]\nimages:\n" + "\n".join(lines) + "\n"
    (folder / "kustomization.yaml").write_text(text)
    return build(folder)


@pytest.mark.parametrize("name", OVERLAYS)
def test_namespaces_registry_and_addresses_are_an_overlays_to_change(name, tmp_path):
    text = renamed(tmp_path, name)
    objects = parse(text)
    assert len(objects) == len(overlay(name))
    homes = {o["metadata"].get("namespace", name_of(o)) for o in objects if o["kind"] != "RuntimeClass"}
    assert homes <= {"ours", "ours-jails", "ours-kafka"}
    assert not re.search(r"\brollstream(-sandbox|-kafka)?\.svc\b", text)
    for o in of_kind(objects, *POD_KINDS):
        assert all(re.fullmatch(r"registry\.ours/\S+:v7", c["image"]) for c in containers(o)), name_of(o)
    assert "storageClassName" not in text


def test_services_of_the_manifests_are_the_services_that_exist():
    exist = {p.parent.name for p in (ROOT / "services").glob("*/main.py")}
    for name in OVERLAYS:
        assert services(overlay(name)).keys() == exist
