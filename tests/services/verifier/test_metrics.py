"""Protects what a dashboard sees of the verdicts: canaries, alarms, unknown rates, false accepts; with few labels."""

from prometheus_client import CollectorRegistry, generate_latest

from services.runtime.settings import Verifier
from services.verifier import metrics
from services.verifier.attribution import Facts
from services.verifier.core import VerifierCore
from tests.services.jails import Deliver, OneTask, add_check, add_fixture, completed
from tests.services.verifier.records import canary

CHECK = add_check()
FIXTURE = add_fixture(CHECK)


def test_the_newest_versions_are_told_apart_by_age_only() -> None:
    def run(*_: object) -> Facts:
        return Facts(wanted=5, answered=5)

    core = VerifierCore(Verifier(canary_share=0, audit_share=0), OneTask(FIXTURE, CHECK), run, str, "v", lambda: 0)
    registry = CollectorRegistry()
    metrics.register(core, registry)
    empty = generate_latest(registry).decode()
    assert 'rlvr_verifier_unknown_rate{age="0"} NaN' in empty
    deliver = Deliver(core, "rollout.completed.v1")
    for version in range(6):
        deliver.give(completed(FIXTURE, version, policy_version=version))
        deliver.give(completed(FIXTURE, 10 + version, policy_version=version, stop_reason="engine", diff=None))
    text = generate_latest(registry).decode()
    assert 'rlvr_verifier_unknown_rate{age="0"} 0.5' in text
    assert 'rlvr_verifier_false_accept_share{age="2",by="audits",value="mean"} NaN' in text
    core.tally.add(canary("audit", "pass", policy_version=3))
    core.tally.add(canary("audit", "pass", 1, policy_version=3))
    text = generate_latest(registry).decode()
    assert 'rlvr_verifier_false_accept_share{age="2",by="audits",value="mean"} 0.25' in text
    assert 'rlvr_verifier_alarms{severity="stop"} 0.0' in text
    assert 'rlvr_verifier_canaries{kind="known_bad",outcome="wrong"} 0.0' in text
    assert len(text.splitlines()) == len(empty.splitlines())
