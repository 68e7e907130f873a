"""The alert rules: legal, speaking and silent when they should, on metrics that exist, with a runbook that exists."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.infra.alerts import scrape

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "infra" / "k8s" / "components" / "alerts"
CASES = sorted(Path(__file__).parent.glob("*.yaml"))
FROM_THE_KUBELET = {"kubelet_volume_stats_available_bytes", "kubelet_volume_stats_capacity_bytes"}
"""Metrics that are not ours; every cluster's kubelet has them."""
WORDS = {
    "and", "bool", "by", "changes", "count", "group_right", "increase", "max", "min_over_time", "offset", "on", "or",
    "predict_linear", "rate", "sum", "unless",
}  # fmt: skip
"""What an expression is made of beside metrics and labels."""


def groups() -> Iterator[dict[str, Any]]:
    """Every rule group of the component, as `kubectl apply -k` would send them."""
    listed = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]
    assert sorted(listed) == sorted(path.name for path in FOLDER.glob("*.yaml") if path.stem != "kustomization")
    for name in listed:
        document = yaml.safe_load((FOLDER / name).read_text())
        assert document["kind"] == "PrometheusRule"
        yield from document["spec"]["groups"]


RULES = [rule for group in groups() for rule in group["rules"]]
NAMES = [rule["alert"] for rule in RULES]


@pytest.fixture(scope="module")
def promtool(tmp_path_factory) -> tuple[str, Path]:
    """The program, and a folder with all groups in Prometheus' own form."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    folder = tmp_path_factory.mktemp("rules")
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": list(groups())}))
    return program, folder


def test_the_rules_are_legal(promtool):
    program, folder = promtool
    found = subprocess.run([program, "check", "rules", folder / "rules.yaml"], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_each_alert_speaks_and_is_silent_when_it_should(promtool, case):
    program, folder = promtool
    shutil.copy(case, folder / f"{case.stem}_test.yaml")
    found = subprocess.run(
        [program, "test", "rules", f"{case.stem}_test.yaml"], cwd=folder, capture_output=True, text=True
    )
    assert found.returncode == 0, found.stdout + found.stderr


def test_every_alert_is_tried_both_ways():
    spoken, silent = set(), set()
    for case in CASES:
        for test in yaml.safe_load(case.read_text())["tests"]:
            for one in test["alert_rule_test"]:
                (spoken if one["exp_alerts"] else silent).add(one["alertname"])
                # Two series of which only one is named are a silent case as well.
                if one["exp_alerts"] and len(test["input_series"]) > len(one["exp_alerts"]):
                    silent.add(one["alertname"])
    assert spoken == set(NAMES)
    assert silent == set(NAMES)


def test_every_alert_has_a_severity_and_its_section_of_the_operations_page():
    page = (ROOT / "infra" / "k8s" / "README.md").read_text()
    anchors = {heading.strip().lower().replace(" ", "-") for heading in re.findall(r"^#+ (.+)$", page, re.MULTILINE)}
    for rule in RULES:
        assert rule["labels"]["severity"] in ("critical", "warning"), rule["alert"]
        where, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert where == "infra/k8s/README.md"
        assert anchor == rule["alert"].lower()
        assert anchor in anchors
    described = set(re.findall(r"^### (Rollstream\w+)$", page, re.MULTILINE))
    assert described == set(NAMES), "the page describes exactly the alerts that there are"


def selectors(expression: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Metric name and equality matchers of every selector in an expression."""
    bare = re.sub(r"\b(by|on|group_right|group_left)\s*\([^)]*\)", r"\1", expression)
    # Ranges and numbers go, but not those inside a label's value.
    bare = re.sub(r'("[^"]*")|\[[^\]]*\]|\b\d\w*', lambda found: found[1] or "", bare)
    for name, matchers in re.findall(r"\b([a-z_]+)\b(?!\s*\()(?:\{([^}]*)\})?", bare):
        if name not in WORDS and f'"{name}' not in expression and f"{name}=" not in expression:
            yield name, dict(re.findall(r'(\w+)="([^"]*)"', matchers))


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> scrape.Samples:
    return scrape.of_a_running_stack(tmp_path_factory.mktemp("scraped"))


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_every_metric_of_a_rule_is_exported_by_a_running_service(exported, rule):
    asked = dict(selectors(rule["expr"]))
    assert asked, rule["expr"]
    for name, matchers in selectors(rule["expr"]):
        if name in FROM_THE_KUBELET:
            continue
        assert exported.has(name, matchers), f"no service exports {name}{matchers}"
