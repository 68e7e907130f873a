"""What the tests on Kubernetes conclude from what they see; needs no cluster."""

import subprocess
import sys
import time

import pytest

from tests.k8s.cluster import Refused, sweep, until
from tests.k8s.equipment import PROGRAMS, absent, why_not
from tests.k8s.evidence import _unwell
from tests.k8s.outside import Recovery, Sample, recovery
from tests.k8s.pods import events, take
from tests.k8s.progress import Table


def samples(lags, service="verifier", began=100.0):
    return [Sample(began - 5 + n, {service: lag}) for n, lag in enumerate(lags)]


@pytest.mark.parametrize(
    ("lags", "expected"),
    [
        ([3, 5, 4, 2, 5, 20, 40, 12, 11, 4], Recovery(5, 40, 3.0)),
        ([3, 5, 4, 2, 5, 2, 3, 5, 11, 0], Recovery(5, 11, 0.0)),
        ([3, 5, 4, 2, 5, 20, 40, 50, 60, 70], Recovery(5, 70, None)),
        ([3, 5, 4, 2, 5, 20, 4, 30, 20, 1], Recovery(5, 30, 4.0)),
        ([3, 5, 4, 2, 5], Recovery(5, 0, None)),
    ],
    ids=["caught up", "never behind", "still behind", "behind twice", "nothing seen yet"],
)
def test_lag_is_recovered_once_it_is_usual_again_after_its_peak(lags, expected):
    assert recovery(samples(lags), "verifier", 100.0) == expected


def pod(**status):
    meta = {"uid": "u", "name": "gate-0", "namespace": "n", "labels": {"app.kubernetes.io/name": "gate"}}
    meta |= status.pop("meta", {})
    return {"metadata": meta, "spec": {"containers": [{"name": "service", "image": "i"}]}, "status": status}


def test_a_pods_life_is_read_from_its_changes():
    lives = {}
    ended = {"name": "service", "restartCount": 0, "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}
    take(lives, "ADDED", pod(), 1.0)
    take(lives, "MODIFIED", pod(conditions=[{"type": "Ready", "status": "True"}], podIP="198.18.0.9"), 2.0)
    take(lives, "MODIFIED", pod(meta={"deletionTimestamp": "now"}), 3.0)
    take(lives, "MODIFIED", pod(meta={"deletionTimestamp": "now"}, containerStatuses=[ended]), 4.0)
    take(lives, "DELETED", pod(meta={"deletionTimestamp": "now"}), 5.0)
    life = lives["u"]
    assert (life.created, life.ready, life.asked, life.gone) == (1.0, 2.0, 3.0, 5.0)
    assert (life.service, life.exit_code, life.restarts, life.ip) == ("gate", 0, 0, "198.18.0.9")


def test_a_crash_is_told_from_an_end_that_was_asked_for():
    lives = {}
    dead = {"terminated": {"exitCode": 1, "reason": "Error", "finishedAt": "t"}}
    take(lives, "ADDED", pod(), 1.0)
    take(lives, "MODIFIED", pod(containerStatuses=[{"name": "service", "restartCount": 0, "state": dead}]), 2.0)
    take(lives, "MODIFIED", pod(containerStatuses=[{"name": "service", "restartCount": 1, "lastState": dead}]), 3.0)
    assert (lives["u"].restarts, lives["u"].exit_code) == (1, None)
    assert lives["u"].ends == ["exit code 1 (Error) at t"]


def test_a_stream_that_is_cut_short_gives_what_was_whole():
    assert list(events(iter(['{"type": "ADDED"}\n', '{"type": 2}\n', '{"type": ']))) == [{"type": "ADDED"}, {"type": 2}]


def test_the_table_lines_up_and_refuses_a_column_of_its_own():
    table = Table()
    table.put("gate", "roll", "4.1 s")
    table.put("verifier", "lag peak", "120")
    head, rule, gate, verifier = table.lines()
    assert head.index("roll") == gate.index("4.1 s") == rule.index("-", head.index("roll"))
    assert head.index("lag peak") == verifier.index("120")
    with pytest.raises(KeyError):
        table.put("gate", "mood", "good")


def test_only_packages_whose_program_is_absent_are_asked_for(tmp_path, monkeypatch):
    there = set(PROGRAMS) - {"runc", "xz"}
    assert absent(PROGRAMS, lambda program: program if program in there else None) == ["runc", "xz-utils"]
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert "the programs of the cluster are absent" in why_not(tmp_path)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert "only root" in why_not(tmp_path)


def test_waiting_ends_with_what_was_last_seen_and_outlives_a_refusal():
    answers = iter([Refused("no such pod"), 0, 7])

    def look():
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert until(look, 5, "seven", every_s=0) == 7
    with pytest.raises(AssertionError, match=r"six did not happen within 0\.05 s; last seen: 0"):
        until(lambda: 0, 0.05, "six", every_s=0.01)


def test_the_unwell_are_those_not_ready_or_started_again():
    well = {"metadata": {"name": "a"}, "status": {"containerStatuses": [{"ready": True}]}}
    done = {"metadata": {"name": "b"}, "status": {"phase": "Succeeded", "containerStatuses": [{"ready": False}]}}
    waits = {"metadata": {"name": "c"}, "status": {}}
    again = {"metadata": {"name": "d"}, "status": {"containerStatuses": [{"ready": True, "restartCount": 2}]}}
    assert [_unwell(p) for p in (well, done, waits, again)] == [[], [], [("c", False)], [("d", True)]]


def test_a_sweep_of_a_cgroup_that_nobody_is_in_ends_nobody():
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as bystander:
        assert sweep(f"rollstream-nobody-{time.monotonic_ns()}") == []
        assert bystander.poll() is None
        bystander.kill()
