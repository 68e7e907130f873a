"""What a running stack exports: every service of a short synthetic run, scraped as Prometheus would."""

from __future__ import annotations

import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from schemas.group import GroupClosed
from tests.e2e.conftest import running, tiny

COMES_WITH_A_FAULT = frozenset({"rlvr_records_invalid_total", "rlvr_records_expired_total"})
"""Counters whose labels name the fault: a healthy service has no series of them, but declares their families."""


@dataclass(frozen=True)
class Samples:
    """Every series that was scraped: (name, labels)."""

    series: tuple[tuple[str, Mapping[str, str]], ...]
    declared: frozenset[str]

    def has(self, name: str, matchers: Mapping[str, str]) -> bool:
        """Whether a series matches all of `matchers`, or appears with a first fault."""
        if name in COMES_WITH_A_FAULT:
            return name in self.declared
        return any(found == name and matchers.items() <= labels.items() for found, labels in self.series)


def of_a_running_stack(root: Path) -> Samples:
    """Start every service on a synthetic run, wait for its first closed groups, and scrape all of them."""
    settings = tiny(
        root / "run",
        dispatch={"updates": 1_000, "group_size": 2, "batch_groups": 2},
        evaluation={"train_tasks": 0, "heldout_bugs": 0, "heldout_families": 0},
        sampler={"engine": "synthetic", "synthetic_min_s": 0.05, "synthetic_max_s": 0.1},
        trainer={"kind": "synthetic", "synthetic_update_s": 0.1},
        coldstart={"max_steps": 0},
        verifier={"trials": 1},
    )
    series, declared = [], set()
    with running(settings) as stack:
        stack.until(lambda: stack.count(GroupClosed) > 0, 90, "the first closed group")
        for process in stack.stack.supervisor.processes.values():
            told = process.ready() or {}
            if "health_port" not in told:
                continue  # the broker
            page = urllib.request.urlopen(f"http://127.0.0.1:{told['health_port']}/metrics", timeout=10).read().decode()
            for family in text_string_to_metric_families(page):
                declared.add(f"{family.name}_total" if family.type == "counter" else family.name)
                series += [(sample.name, sample.labels) for sample in family.samples]
    ready = {labels["service"] for name, labels in series if name == "rlvr_ready"}
    assert ready >= set(type(settings.scale).model_fields)
    return Samples(tuple(series), frozenset(declared))
