"""Protects certification: sound check-sets pass, and each way of being unfit is caught, named and shown again."""

from __future__ import annotations

import dataclasses
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from services.runtime.errors import UserError
from services.runtime.jail.launcher import JailHost
from services.runtime.settings import Verifier
from services.tasks.build import build_catalogue
from services.tasks.certificates import Certificate
from services.tasks.fixture import CheckSet, Example
from services.tasks.oracle import oracle
from services.verifier import main, trial
from services.verifier.attribution import Facts, attribute
from services.verifier.certify import runs as certify_runs
from services.verifier.certify.load import busy, oversubscribed
from services.verifier.certify.runner import IDLE, LOADED, Certifier, Setting, by_key
from services.verifier.certify.runs import CheckRun, Probe, run_probes, trial_seed
from tests.services.jails import ADD_BUG, ADD_FIX, add_check
from tests.services.verifier.hidden_cases import calc_check

BOUNDS = main.bounds(Verifier())


def siblings(problem: str, count: int) -> list[CheckSet]:
    return [check for check in build_catalogue().checks if check.problem == problem][:count]


@pytest.fixture
def check_run(host: JailHost) -> CheckRun:
    def run(tree: Mapping[str, str], check: CheckSet, seed: int) -> Facts:
        return trial.run(host, tree, check, seed, BOUNDS)

    return run


def certify(check_run: CheckRun, checks: list[CheckSet], runs: int = 6) -> list[Certificate]:
    (group,) = by_key(checks)
    return Certifier(check_run, Setting("sha256:v", "bubblewrap", 3.0, 2, runs)).key(group)


def test_sound_check_sets_are_certified_and_share_what_belongs_to_their_key(check_run: CheckRun) -> None:
    checks = siblings("numbers/gcd", 2)
    first, second = certify(check_run, checks, runs=10)
    assert [first.check_digest, second.check_digest] == [check.digest for check in checks]
    for found in (first, second):
        assert (found.state, found.reason, found.version) == ("certified", "", 1)
        assert (found.reference.runs, found.no_op.runs, found.known_bad.runs) == (5, 5, 10)
        assert found.reference.clean
        assert found.no_op.clean
        assert found.known_bad.clean
    assert first.pool == second.pool
    pool = first.pool
    assert {load: tally.runs for load, tally in pool.reference.items()} == {IDLE: 8, LOADED: 2}
    assert pool.mutants.total >= 15
    assert pool.mutants.kill_rate >= 0.9
    assert pool.mutants.at_first > 0
    assert pool.forgeries.clean
    assert pool.forgeries.runs > 9
    assert pool.cpu_p99_s is not None
    assert 0 < pool.cpu_p99_s < 1
    assert pool.runs.runs == 10


def test_a_reference_that_no_candidate_can_hand_in_is_quarantined(check_run: CheckRun) -> None:
    (check,) = siblings("numbers/gcd", 1)

    def named(tree: Mapping[str, str]) -> dict[str, str]:
        return dict.fromkeys(["aux.py"], *tree.values())

    denied = dataclasses.replace(check, reference=named(check.reference), known_bad=tuple(map(named, check.known_bad)))
    (found,) = certify(check_run, [denied])
    assert found.state == "quarantined"
    assert found.reference.clean
    assert "path_denied: 'aux.py'" in found.reason


def test_flaky_reference_quarantines_its_key_with_a_seed_that_shows_it_again(check_run: CheckRun) -> None:
    """The reference is right under half of all hash seeds: what a set's iteration order does to an honest program."""
    checks = siblings("numbers/gcd", 2)
    (source,) = checks[0].reference.values()
    flaky = {"solution.py": source.replace("    return a", "    return a + hash('order') % 2")}
    checks = [dataclasses.replace(check, reference=flaky) for check in checks]
    found = certify(check_run, checks, runs=40)
    assert {certificate.state for certificate in found} == {"quarantined"}
    (named,) = (certificate for certificate in found if certificate.reason.startswith("the reference failed"))
    assert "another check-set that judges alike" in next(one.reason for one in found if one is not named)
    assert named.pool.flake_bound == 1.0
    assert named.pool.runs.runs < 40  # it ended there
    seed = int(named.reason.split("trial seed ")[1].split(",")[0])
    check = next(check for check in checks if check.task_id == named.task_id)
    assert attribute(check_run(flaky, check, seed)) == ("fail", "wrong_value")


def test_check_set_that_passes_a_known_bad_tree_is_quarantined_alone(check_run: CheckRun) -> None:
    spared, sound = siblings("numbers/gcd", 2)
    spared = dataclasses.replace(spared, known_bad=(*spared.known_bad, spared.reference))
    found = certify(check_run, [spared, sound])
    assert [certificate.state for certificate in found] == ["quarantined", "certified"]
    assert "known-bad tree 3 passed at trial seed" in found[0].reason


def test_unrepaired_code_that_passes_is_named(check_run: CheckRun) -> None:
    (check,) = siblings("numbers/gcd", 1)
    (found,) = certify(check_run, [dataclasses.replace(check, known_bad=(check.reference,))])
    assert "the unrepaired code passed" in found.reason


def test_checks_that_let_mutants_through_are_quarantined(check_run: CheckRun) -> None:
    """Two plus two is also two times two, and nothing else is asked."""
    blind = add_check(fixed_cases=(Example((2, 2), 4),), reference={"s.py": ADD_FIX}, known_bad=({"s.py": ADD_BUG},))
    (found,) = certify(check_run, [blind])
    assert found.state == "quarantined"
    assert "of the mutants are killed, 90% are needed" in found.reason
    assert any("a * b" in what for what in found.pool.mutants.spared)
    assert found.pool.mutants.equivalent == 0


class Narrow(CheckSet):
    """Asks as check-sets did once: small ints and short lists only."""

    def inputs(self, rng: random.Random) -> list[tuple[Any, ...]]:
        known = oracle(self.problem, self.oracle_digest)
        return [known.generate(rng) for _ in range(self.cases_per_trial)]


def test_checks_with_too_small_questions_are_quarantined_with_an_input_that_shows_it(check_run: CheckRun) -> None:
    (check,) = siblings("searching/first_index", 1)
    given = {item.name: getattr(check, item.name) for item in dataclasses.fields(check) if item.init}
    (found,) = certify(check_run, [Narrow(**given)])
    assert found.state == "quarantined"
    assert "domain mutants live: right up to 9 items of argument 1" in found.reason
    assert "would kill it: right is" in found.reason
    domain = found.pool.domain
    assert domain is not None
    assert domain.alive > 8
    assert domain.made == domain.killed + domain.equivalent + domain.undecided + domain.alive
    assert found.pool.mutants.kill_rate >= 0.9  # changed operators alone say that all is well


def test_domain_mutants_of_hidden_tests_are_asked_through_the_tests(check_run: CheckRun) -> None:
    """What the two small calls let through is written down as not decided: nobody states what else may be asked."""
    check = dataclasses.replace(
        calc_check("outside"), reference={"calc.py": ADD_FIX}, known_bad=({"calc.py": ADD_BUG},)
    )
    (found,) = certify(check_run, [check], runs=2)
    domain = found.pool.domain
    assert domain is not None
    assert domain.made == domain.killed + domain.undecided > 15
    assert domain.killed > 0
    assert domain.undecided > 0
    assert "the check itself was asked" in domain.method
    assert "right up to" in domain.method


def test_a_passed_forgery_quarantines_its_key(check_run: CheckRun) -> None:
    """Nothing is asked but what an identity answers rightly."""
    blind = add_check(
        entry="same", fixed_cases=(Example((3,), 3), Example(("x",), "x")),
        known_bad=({"s.py": "def same(x): return 1\n"},),
        reference={"s.py": "def same(x):\n    y = x\n    return y\n"},
    )  # fmt: skip
    (found,) = certify(check_run, [blind])
    assert "a forgery (the arguments as they came) passed at trial seed" in found.reason
    assert "1 of 12 forgeries passed" in found.reason


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"oracle_digest": "sha256:other"}, "the check-set itself fails"),
        ({"known_bad": ()}, "no tree that must fail"),
        ({"reference": {}}, "no reference"),
        ({"reference": {"s.py": "def gcd(:\n"}}, "the reference failed (syntax_error)"),
    ],
)
def test_check_sets_that_cannot_be_tried_are_quarantined(check_run: CheckRun, changes: dict, words: str) -> None:
    (check,) = siblings("numbers/gcd", 1)
    (found,) = certify(check_run, [dataclasses.replace(check, **changes)])
    assert found.state == "quarantined"
    assert words in found.reason


def test_slow_reference_is_quarantined(check_run: CheckRun) -> None:
    (check,) = siblings("numbers/gcd", 1)
    certifier = Certifier(check_run, Setting("sha256:v", "bubblewrap", cpu_limit_s=0.001, runs=2))
    (found,) = certifier.key([check])
    assert "too near to its limit" in found.reason


def test_infrastructure_is_repeated_and_never_counted(check_run: CheckRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certify_runs, "_BACKOFF_S", 0.0)
    failed: set[int] = set()
    lock = threading.Lock()

    def faulty(tree: Mapping[str, str], check: CheckSet, seed: int) -> Facts:
        with lock:
            first = seed not in failed
            failed.add(seed)
        return Facts(fault="no_start", booted=False) if first else check_run(tree, check, seed)

    (found,) = certify(faulty, siblings("numbers/gcd", 1), runs=4)
    assert found.state == "certified"
    assert found.reference.runs == found.reference.right == 4
    assert len(failed) > 30

    def broken(tree: Mapping[str, str], check: CheckSet, seed: int) -> Facts:
        return Facts(fault="no_start", booted=False)

    with pytest.raises(UserError, match="no_start"):
        certify(broken, siblings("numbers/gcd", 1))


def test_the_same_certification_asks_the_same_and_every_run_asks_otherwise() -> None:
    first, second = siblings("numbers/gcd", 2)
    seeds = {
        trial_seed(base, check, role, number)
        for base in (0, 1)
        for check in (first, second)
        for role in ("reference", "the unrepaired code")
        for number in range(10)
    }
    assert len(seeds) == 80
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert trial_seed(0, first, "reference", 3) == trial_seed(0, first, "reference", 3)


def test_probes_are_read_only_a_little_ahead(check_run: CheckRun) -> None:
    """So that a disagreement ends a key at once instead of after everything that was planned."""
    (check,) = siblings("numbers/gcd", 1)
    read = []

    def probes():
        for number in range(100):
            read.append(number)
            yield Probe(check, check.reference, "reference", "the reference", (number,))

    findings = run_probes(check_run, probes(), 2)
    assert next(findings).right
    findings.close()
    assert len(read) < 10


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def children() -> set[int]:
    tasks = Path(f"/proc/{os.getpid()}/task").iterdir()
    return {int(pid) for task in tasks for pid in (task / "children").read_text().split()}


def test_load_is_there_and_leaves_nothing() -> None:
    before = children()
    assert oversubscribed() == 2 * len(os.sched_getaffinity(0))
    hogs: set[int] = set()

    def interrupted() -> None:
        with busy(2):
            hogs.update(children() - before)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert len(hogs) == 2
    assert not any(map(alive, hogs))
    assert not children() & hogs


def test_load_ends_with_whoever_started_it() -> None:
    script = (
        "import os, services.verifier.certify.load as load\n"
        "with load.busy(1):\n"
        "    tasks = os.listdir('/proc/self/task')\n"
        "    print(*(open(f'/proc/self/task/{t}/children').read() for t in tasks), flush=True)\n"
        "    os._exit(0)\n"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    (hog,) = map(int, ran.stdout.split())
    deadline = time.monotonic() + 60
    while alive(hog) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(hog)
