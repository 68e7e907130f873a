"""Protects training: nothing uncertified is learnt unless told, nothing quarantined ever; what is shipped suffices."""

import dataclasses

import pytest

from services.runtime.errors import UserError
from services.tasks import certificates
from services.tasks.build import build_catalogue
from services.tasks.certificates import MIN_KILL_RATE, Certificates, judging_key
from services.tasks.forgeries import forgeries
from services.tasks.taskset import TRAIN
from services.tasks.training import read, trainable


@pytest.fixture(scope="module")
def shipped() -> Certificates:
    return read(certificates.shipped(), "shipped")


def test_every_shipped_task_is_certified(shipped: Certificates) -> None:
    """The figures of certification are the claims of the README: this holds the file to them."""
    tasks = build_catalogue()
    assert shipped.refusals(tasks.fixtures) == {}
    assert len(certificates.shipped()) < 400_000
    for check in tasks.checks:
        found = shipped.get(check.digest)
        assert found is not None
        assert found.pool.key == judging_key(check)
        assert found.reference.clean
        assert (found.no_op.runs, found.known_bad.runs) == (5, 10)
        assert found.no_op.clean
        assert found.known_bad.clean
        assert found.pool.runs.runs >= 300
        assert found.pool.flake_bound <= 0.01
        assert set(found.pool.reference) == {"idle", "2x"}
        assert found.pool.mutants.kill_rate >= MIN_KILL_RATE
        assert found.pool.mutants.total >= 15
        assert found.pool.forgeries.runs == len(forgeries(check.entry)) > 9
        assert found.pool.forgeries.clean
        assert certificates.decide([], found.pool) == ("certified", "")


def test_uncertified_tasks_are_refused_by_name(shipped: Certificates) -> None:
    fixtures = build_catalogue().split(TRAIN)
    assert trainable(fixtures, shipped, False).fixtures == fixtures
    with pytest.raises(UserError) as refused:
        trainable(fixtures, Certificates(), False)
    for words in (f"{len(fixtures)} of {len(fixtures)}", fixtures[0].task_id, "and", "more"):
        assert words in refused.value.what
    assert "tasks.allow_uncertified=true" in str(refused.value)
    assert "tasks.certificates=FILE" in str(refused.value)
    assert trainable(fixtures, Certificates(), True).fixtures == fixtures


def test_quarantined_tasks_stay_out_even_when_uncertified_ones_may_train(shipped: Certificates) -> None:
    fixtures = build_catalogue().split(TRAIN)
    good = shipped.get(fixtures[0].check_digest)
    assert good is not None
    bad = dataclasses.replace(good, state="quarantined", reason="the reference failed at trial seed 7")
    held = shipped.updated([bad], "it flakes")
    with pytest.raises(UserError, match="trial seed 7"):
        trainable(fixtures, held, False)
    found = trainable(fixtures, held, True)
    assert found.fixtures == fixtures[1:]
    assert found.notice() == f"left out of training: {fixtures[0].task_id} (the reference failed at trial seed 7)"
    assert trainable(fixtures, shipped, True).notice() == ""


def test_a_changed_check_set_has_no_certificate(shipped: Certificates) -> None:
    """The certificate names the digest: what was certified is what is trained on."""
    (fixture, *_) = build_catalogue().split(TRAIN)
    check = build_catalogue().checks.get(fixture.task_id)
    other = dataclasses.replace(fixture, check_digest=dataclasses.replace(check, cases_per_trial=8).digest)
    with pytest.raises(UserError, match="no certificate"):
        trainable([other], shipped, False)


def test_bad_file_is_one_message() -> None:
    with pytest.raises(UserError, match="not JSON"):
        read(b"x", "somewhere")
