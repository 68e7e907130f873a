"""Every overlay and every component, asked of a real API server that knows KEDA's and Strimzi's definitions."""

import os

import pytest
import yaml

from tests.infra.k8s.render import K8S, OVERLAYS, parse
from tests.k8s.cluster import Refused

FOREIGN = ("PodMonitor", "PrometheusRule")
"""Of the Prometheus operator, whose definitions are not part of the equipment; promtool tries the rules."""
ALONE = ("strimzi", "secrets-example/services", "secrets-example/jails")
"""Components that stand beside an overlay: a deployment of its own, and what the laptop overlay makes itself."""
AFTER = {"keda-sasl": "keda/{half}"}
"""Component -> the one that it changes."""
HALVES = ("services", "jails")
COMPONENTS = sorted(
    str(path.parent.relative_to(K8S / "components"))
    for path in (K8S / "components").rglob("kustomization.yaml")
    if "kind: Component" in path.read_text()
)


@pytest.fixture(scope="module")
def spaces(cluster):
    """The namespaces of all overlays, since the server looks into them even when nothing is to be done."""
    found = {}
    for name in OVERLAYS:
        for thing in parse(cluster.kubectl("kustomize", str(K8S / "overlays" / name))):
            if thing["kind"] == "Namespace":
                found.setdefault(thing["metadata"]["name"], thing)
    text = yaml.safe_dump_all(found.values())
    cluster.kubectl("apply", "-f", "-", given=text)
    yield sorted(found)
    cluster.kubectl("delete", "--wait=false", "-f", "-", given=text)


def asked(cluster, folder):
    """What the server answers to a folder's objects, strictly, a warning being a refusal; and how many there were."""
    things = parse(cluster.kubectl("kustomize", str(folder)))
    known = [thing for thing in things if thing["kind"] not in FOREIGN]
    said = cluster.kubectl(
        "apply", "--dry-run=server", "--validate=strict", "--warnings-as-errors", "-f", "-",
        given=yaml.safe_dump_all(known), timeout_s=60,
    )  # fmt: skip
    answers = said.splitlines()
    assert len(answers) == len(known), said
    assert all(line.endswith("(server dry run)") for line in answers), said
    return len(things)


@pytest.mark.parametrize("name", OVERLAYS)
def test_the_server_takes_an_overlay(cluster, spaces, name):
    assert asked(cluster, K8S / "overlays" / name) > 40


@pytest.mark.parametrize("component", COMPONENTS)
def test_the_server_takes_a_component(cluster, spaces, tmp_path, component):
    halves = [half for half in HALVES if component.endswith(f"/{half}")] or HALVES
    for half in halves:
        base = K8S / "overlays" / "laptop" / half
        parts = [AFTER[component].format(half=half)] if component in AFTER else []
        made = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [] if component in ALONE else [os.path.relpath(base, tmp_path)],
            "components": [os.path.relpath(K8S / "components" / part, tmp_path) for part in (*parts, component)],
        }
        if component in ALONE:
            made["namespace"] = spaces[0]
        (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(made))
        assert asked(cluster, tmp_path) > 0


@pytest.mark.parametrize(
    ("folder", "good", "bad"),
    [
        ("components/keda/services", "pollingInterval: 10", "pollingInterval: often"),
        ("overlays/production/kafka", "kind: KafkaTopic", "kind: KafkaTopic\nwhatever: 1"),
    ],
)
def test_the_server_would_refuse_what_is_wrong(cluster, spaces, folder, good, bad):
    """That it says yes to everything above is only worth something because it also says no."""
    texts = [path.read_text() for path in sorted((K8S / folder).glob("*.yaml"))]
    text = next(text for text in texts if good in text)
    with pytest.raises(Refused, match=r"spec\.pollingInterval: Invalid|unknown field \"whatever\""):
        cluster.kubectl("-n", spaces[0], "apply", "--dry-run=server", "--validate=strict", "-f", "-",
                        given=text.replace(good, bad, 1))  # fmt: skip
