"""An assessment reaches nobody, whatever its fixture declares: answers could be fetched, and hidden inputs told."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import services.verifier
from schemas.verification import VerificationVerdict
from services.runtime.jail.backend import PLAIN, Options
from services.runtime.jail.launcher import JailHost
from services.runtime.jail.limits import Limits
from services.runtime.jail.running import BubblewrapJail
from services.runtime.settings import Verifier
from services.tasks.fixture import CheckSet, HiddenTests
from services.verifier import trial
from services.verifier.core import VerifierCore
from tests.services.jails import ADD_BUG, ADD_FIX, Deliver, OneTask, add_check, add_fixture, completed
from tests.services.verifier.hidden_cases import BOUNDS, CALC_IDS, CALC_TESTS, check_of

HOSTS = ("example.org:443", "127.0.0.1:8080")
LOOKS = """import os
assert not [name for name in os.environ if "proxy" in name.lower()]
assert not os.path.exists("/proxy")
"""


def hidden(mode: str) -> CheckSet:
    tests = HiddenTests(
        {"test_calc.py": CALC_TESTS.replace("from calc", "from solution")}, "solution", mode, CALC_IDS,
        {"functions": ["add"]},
    )  # fmt: skip
    return check_of(tests, task_id="tiny/add", entry="solution:add")


@pytest.mark.parametrize("kind", ["cases", "outside", "inside"])
def test_a_fixtures_hosts_are_not_its_assessments(host: JailHost, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    check = add_check() if kind == "cases" else hidden(kind)
    fixture = add_fixture(check, hosts=HOSTS)
    launch, seen = host.launch, list[Options]()

    def noted(limits: Limits, options: Options = PLAIN) -> BubblewrapJail:
        seen.append(options)
        return launch(limits, options)

    monkeypatch.setattr(host, "launch", noted)
    core = VerifierCore(
        Verifier(canary_share=0, audit_share=0, trials=1, min_evidence="E1"), OneTask(fixture, check),
        lambda candidate, one, seed: trial.run(host, candidate.tree, one, seed, BOUNDS), str, "v", lambda: 0,
    )  # fmt: skip
    deliver = Deliver(core, "rollout.completed.v1")
    lines = (LOOKS + ADD_FIX).splitlines()
    diff = f"--- a/solution.py\n+++ b/solution.py\n@@ -1,2 +1,{len(lines)} @@\n"
    diff += "".join(f"-{line}\n" for line in ADD_BUG.splitlines()) + "".join(f"+{line}\n" for line in lines)
    deliver.give(completed(fixture, diff=diff))

    def final() -> list[tuple[str, str]]:
        verdicts = [one for one in deliver.outputs if isinstance(one, VerificationVerdict)]
        return [(one.verdict, one.cause) for one in verdicts if one.verdict != "pending"]

    for _ in range(5):  # a starved machine may fail to start a jail: the verdict is pending, and the judgement repeated
        if final():
            break
        deliver.now_ms += 60_000
        deliver.apply(core.tick(deliver.now_ms))
    assert final() == [("pass", "ok")]
    assert seen
    assert all(options.hosts == () and options.runtime != "network" for options in seen)
    assert host.proxies.sockets == []


def test_the_verifier_has_no_word_for_hosts() -> None:
    """A check set carries none, and nothing that the verifier launches or reads names any."""
    assert "hosts" not in CheckSet.__dataclass_fields__
    for path in Path(services.verifier.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            assert not (isinstance(node, ast.keyword) and node.arg == "hosts"), path.name
            assert not (isinstance(node, ast.Attribute) and node.attr == "hosts"), path.name
