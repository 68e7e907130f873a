"""More and fewer pods while the run goes on: by hand, and by KEDA on a real backlog."""

import time
from pathlib import Path

import pytest
import yaml

from tests.infra.k8s.render import parse
from tests.k8s.cluster import until
from tests.k8s.progress import say

ELASTIC = ("sampler", "sandbox", "verifier")
BACKLOG = 25
"""Trials that wait for their verdict: more than twice what KEDA is told that one verifier may have."""
PLAIN, SCALED = (Path(__file__).with_name(name) for name in ("overlay", "overlay-keda"))


@pytest.mark.timeout(300)
def test_scaled_up_and_down_by_hand(run):
    for replicas in (3, 1):
        run.scale(replicas, *ELASTIC)
        run.progress(1)
    run.settled()


def named(thing):
    """Which object it is."""
    return thing["kind"], thing["metadata"].get("namespace"), thing["metadata"]["name"]


@pytest.fixture
def verifier_scaled(run):
    """KEDA's say over the verifier alone, from when it is called; afterwards nothing of it, and one pod again."""
    plain, scaled = (parse(run.cluster.kubectl("kustomize", str(folder))) for folder in (PLAIN, SCALED))
    there = {named(thing) for thing in plain}
    new = [thing for thing in scaled if named(thing) not in there]
    mine = [thing for thing in new if thing["kind"] != "ScaledObject" or thing["metadata"]["name"] == "verifier"]
    objects = yaml.safe_dump_all(mine)
    yield lambda: run.cluster.kubectl("apply", "-f", "-", given=objects)
    run.cluster.kubectl("delete", "--ignore-not-found", "--timeout=60s", "-f", "-", given=objects, timeout_s=70)
    run.scale(1, "verifier", "dispatch")


@pytest.mark.timeout(300)
def test_keda_scales_the_verifier_up_on_a_backlog_and_down_after_it(run, verifier_scaled):
    """Dispatch is away while the backlog is worked off: with more trials always coming there is no "after it"."""
    run.scale(0, "verifier")
    until(lambda: run.outside.latest.lag.get("verifier", 0) >= BACKLOG, 120, f"{BACKLOG} trials without a verdict")
    backlog = run.outside.latest.lag["verifier"]
    began = time.monotonic()
    verifier_scaled()
    until(lambda: run.replicas("verifier") >= 2, 120, "KEDA scaling the verifier up")
    up = time.monotonic() - began
    say(f"  a backlog of {backlog}: two verifiers after {up:.0f} s")
    run.scale(0, "dispatch")
    until(lambda: run.outside.latest.lag.get("verifier", 0) == 0, 120, "the backlog worked off")
    done = time.monotonic() - began
    until(lambda: run.replicas("verifier") == 1 and not run.pods.leaving(), 180, "KEDA scaling the verifier down")
    down = time.monotonic() - began
    run.table.note(f"KEDA: a lag of {backlog} took the verifier from 0 to 2 and more in {up:.0f} s; it was worked off "
                   f"after {done:.0f} s, and one was left after {down:.0f} s")  # fmt: skip
    run.scale(1, "dispatch")
    run.progress(1)
