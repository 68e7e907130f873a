"""Protects certificates: the statistics, what shares evidence, that every change is counted, and that forging shows."""

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.tasks import certificates
from services.tasks.build import build_catalogue
from services.tasks.certificates import (
    Certificate,
    Certificates,
    DomainMutants,
    Mutants,
    Pool,
    Tally,
    flake_bound,
    judging_key,
)
from services.tasks.fixture import content_digest
from services.tasks.taskset import TRAIN, BadDocument

MUTANTS = Mutants(
    total=30, killed=26, at_first=25, equivalent=2, trials=3, method="2000 inputs", spared=("off, line 4",)
)
POOL = Pool(
    key="sha256:k", problem="tiny/add", reference={"idle": Tally(240, 240), "2x": Tally(60, 60)}, mutants=MUTANTS,
    forgeries=Tally(12, 12),
    cpu_p99_s=0.02, cpu_limit_s=3.0, seed=0, verifier_digest="sha256:v", backend="bubblewrap",
    made_at="2026-01-01T00:00:00+00:00",
)  # fmt: skip
ONE = Certificate(
    "tiny/add", "sha256:c", "certified", "", Tally(13, 13), Tally(5, 5), Tally(10, 10), POOL
)  # fmt: skip


@pytest.mark.parametrize(("runs", "bound"), [(10, 0.259), (30, 0.095), (60, 0.049), (100, 0.030), (300, 0.010)])
def test_flake_bound_is_the_published_one(runs: int, bound: float) -> None:
    assert flake_bound(runs) == pytest.approx(bound, abs=5e-4)


@given(st.integers(1, 10_000), st.floats(0.5, 0.999))
def test_flake_bound_solves_its_equation(runs: int, confidence: float) -> None:
    assert (1 - flake_bound(runs, confidence)) ** runs == pytest.approx(1 - confidence)
    assert flake_bound(runs + 1, confidence) < flake_bound(runs, confidence)


def test_no_run_bounds_nothing() -> None:
    assert flake_bound(0) == 1.0
    assert not Tally().clean
    assert dataclasses.replace(POOL, reference={}).faults()


def test_kill_rate_leaves_out_equivalent_mutants() -> None:
    assert MUTANTS.kill_rate == pytest.approx(26 / 28)
    assert Mutants().kill_rate == 1.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"reference": {"idle": Tally(300, 299)}}, "passed 299 of 300"),
        ({"mutants": Mutants(total=10, killed=8)}, "80% of the mutants"),
        ({"forgeries": Tally(12, 11)}, "1 of 12 forgeries passed"),
        ({"mutants": Mutants()}, "no mutant"),
        ({"cpu_p99_s": 1.1}, "too near to its limit"),
        (
            {"domain": DomainMutants(9, 7, alive=2, living=("right up to 5", "x"))},
            "2 of 9 domain mutants live: right up to 5",
        ),
    ],
)
def test_every_fault_of_a_key_quarantines_with_its_reason(change: dict, words: str) -> None:
    state, reason = certificates.decide([], dataclasses.replace(POOL, **change))
    assert state == "quarantined"
    assert words in reason
    assert certificates.decide([], POOL) == ("certified", "")
    assert certificates.decide(["the unrepaired code passed"], POOL)[0] == "quarantined"


def test_key_is_shared_by_what_judges_alike_and_by_nothing_else() -> None:
    tasks = build_catalogue()
    first = tasks.checks.get(tasks.fixtures[0].task_id)
    alike = [check for check in tasks.checks if check.problem == first.problem]
    assert {judging_key(check) for check in alike} == {judging_key(first)}
    assert len({judging_key(check) for check in tasks.checks}) == len({check.problem for check in tasks.checks})
    for change in (
        {"comparator": "multiset"},
        {"cases_per_trial": 31},
        {"call_cpu_s": 0.3},
        {"oracle_digest": "sha256:0"},
        {"reference": {"solution.py": "def f():\n    return 1\n"}},
        {"entry": "other"},
    ):
        assert judging_key(dataclasses.replace(first, **change)) != judging_key(first)
    assert judging_key(dataclasses.replace(first, known_bad=(), decoys=(), task_id="x")) == judging_key(first)


def test_every_change_is_counted_and_kept() -> None:
    kept = Certificates().updated([ONE], "first")
    assert kept.get("sha256:c") == ONE
    assert kept.history == ()
    other = dataclasses.replace(ONE, check_digest="sha256:d")
    changed = kept.updated([other], "the check-set changed")
    now = changed.get("sha256:d")
    assert now is not None
    assert (now.version, now.previous) == (2, ONE.digest)
    assert changed.get("sha256:c") is None
    (change,) = changed.history
    assert (change.version, change.digest, change.check_digest) == (1, ONE.digest, "sha256:c")
    assert (change.state, change.why) == ("certified", "the check-set changed")
    again = changed.updated([dataclasses.replace(other, state="quarantined", reason="seed 5")], "run again")
    assert again.by_task["tiny/add"].version == 3
    assert [change.version for change in again.history] == [1, 2]
    assert kept.by_task["tiny/add"] == ONE  # nothing changes in place


def test_refusals_name_what_is_missing_and_what_is_quarantined() -> None:
    fixtures = build_catalogue().split(TRAIN)[:3]
    good, bad, none = (fixture.check_digest for fixture in fixtures)
    found = [
        dataclasses.replace(ONE, task_id=fixtures[0].task_id, check_digest=good),
        dataclasses.replace(
            ONE, task_id=fixtures[1].task_id, check_digest=bad, state="quarantined", reason="flakes at seed 7"
        ),
    ]
    kept = Certificates().updated(found, "")
    assert kept.refusal(none) == "no certificate"
    assert kept.refusals(fixtures) == {
        fixtures[1].task_id: "quarantined: flakes at seed 7",
        fixtures[2].task_id: "no certificate",
    }
    assert kept.quarantined(fixtures) == {fixtures[1].task_id: "flakes at seed 7"}


tallies = st.builds(lambda right, wrong: Tally(right + wrong, right), st.integers(0, 400), st.integers(0, 3))
pools = st.builds(
    dataclasses.replace,
    st.just(POOL),
    reference=st.dictionaries(st.sampled_from(["idle", "2x"]), tallies),
    cpu_p99_s=st.none() | st.floats(0, 5),
    seed=st.integers(0, 2**40),
    domain=st.none()
    | st.builds(
        DomainMutants,
        made=st.integers(0, 99),
        living=st.lists(st.text(max_size=5), max_size=2).map(tuple),
        survival=st.floats(0, 1),
    ),
    mutants=st.builds(Mutants, total=st.integers(9, 40), killed=st.integers(0, 9), spared=st.just(("a", "b"))),
)
found_certificates = st.builds(
    dataclasses.replace,
    st.just(ONE),
    task_id=st.sampled_from(["a", "b", "c"]),
    check_digest=st.sampled_from(["sha256:1", "sha256:2", "sha256:3"]),
    state=st.sampled_from(["certified", "quarantined"]),
    reason=st.text(max_size=5),
    reference=tallies,
    pool=pools,
)


@given(st.lists(found_certificates, max_size=6), st.text(max_size=5))
def test_documents_come_back_equal(found: list[Certificate], why: str) -> None:
    kept = Certificates()
    for one in found:
        kept = kept.updated([one], why)
    document = kept.document()
    assert certificates.load(document) == kept
    assert certificates.load(document).document() == document
    assert sum(certificate.version for certificate in kept.by_task.values()) - len(kept.by_task) <= len(kept.history)


def test_certificates_from_before_domain_mutants_keep_their_digests() -> None:
    """What was written then says nothing of them, and is read as saying nothing."""
    old = Certificates().updated([ONE], "").document()
    assert b"domain" not in old
    assert certificates.load(old).by_task["tiny/add"].pool.domain is None
    tried = dataclasses.replace(POOL, domain=DomainMutants(90, 60, 29, 1, survival=0.0007, trials=3, method="36 runs"))
    assert tried.digest != POOL.digest
    new = Certificates().updated([dataclasses.replace(ONE, pool=tried)], "")
    assert certificates.load(new.document()) == new


def test_pool_is_written_once() -> None:
    many = Certificates().updated([dataclasses.replace(ONE, task_id=str(number)) for number in range(50)], "")
    body = json.loads(many.document())
    assert len(body["pools"]) == 1
    assert len(body["certificates"]) == 50


def test_altered_documents_are_refused() -> None:
    document = Certificates().updated([ONE], "").document()
    with pytest.raises(BadDocument, match="digest"):
        certificates.load(document.replace(b'"certified"', b'"certifiee"'))
    with pytest.raises(BadDocument, match="format"):
        certificates.load(document.replace(b"certificates/1", b"certificates/2"))
    with pytest.raises(BadDocument, match="JSON"):
        certificates.load(b"not json")
    body = json.loads(document)
    body.pop("digest")
    body["pools"] = []
    with pytest.raises(BadDocument, match="malformed"):
        certificates.load(json.dumps({**body, "digest": content_digest(body)}).encode())


@pytest.mark.parametrize("raw", [
    b"[" * 100_000, b"", b"\0", b"\xff", b"null", b'{"format": "\\ud800"}',
    b'{"format":"' + certificates.FORMAT.encode() + b'","a":NaN}',
    b'{"format":"' + certificates.FORMAT.encode() + b'","a":' + b"9" * 5000 + b"}",
])  # fmt: skip
def test_whatever_a_document_holds_is_one_fault(raw: bytes) -> None:
    with pytest.raises(BadDocument):
        certificates.load(raw)
