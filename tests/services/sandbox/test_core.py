"""One result per command, a workspace per attempt, and no command run twice: the core on real jails."""

import json

import pytest

from schemas.sandbox import SandboxResult
from services.patch.admission import admit
from services.runtime.jail.backend import Options
from services.runtime.jail.launcher import JailHost
from services.runtime.jail.limits import MIB, JailFault, Limits
from services.runtime.settings import Sandbox
from services.sandbox.core import SandboxCore
from services.sandbox.pool import Pool
from services.sandbox.workspace import Known, Operator
from services.tasks.fixture import Fixture
from tests.services.jails import ADD_FIX, Deliver, add_fixture, command

FIXTURE = add_fixture()
LIMITS = Limits(memory_bytes=96 * MIB, processes=12, cpu_s=30)


def made(host: JailHost, fixture=FIXTURE, **changes) -> Deliver:
    def find(taskset: str, task_id: str):
        if task_id != fixture.task_id:
            raise KeyError(task_id)
        return fixture

    operator = Operator(Pool(host, LIMITS, 0), Known())
    core = SandboxCore(Sandbox(**changes), find, operator, "gen", lambda: 2_000)
    return Deliver(core, "sandbox.command.v1")


def ask(
    deliver: Deliver, tool: str, sequence: int, fixture=FIXTURE, raw: str | None = None, **arguments
) -> SandboxResult:
    deliver.give(command(fixture, tool, sequence, raw or json.dumps(arguments)))
    result = deliver.outputs[-1]
    assert isinstance(result, SandboxResult)
    return result


def end(deliver: Deliver) -> None:
    deliver.core.revoked(frozenset(range(8)))
    deliver.apply(deliver.core.tick(3_000))


def test_a_repair_from_first_look_to_submit(host: JailHost) -> None:
    deliver = made(host)
    result = ask(deliver, "test", 0)
    assert (result.status, result.observation, result.checks_passed) == ("ok", "FAIL 1,2 want 3 got -1", False)
    assert result.observation == FIXTURE.first_failure
    assert ask(deliver, "read", 1).observation == "1 def add(a, b):\n2     return a - b"
    result = ask(deliver, "edit", 2, line=2, text="return a * b")
    assert result.observation == "FAIL 1,2 want 3 got 2"
    result = ask(deliver, "edit", 3, line=2, text="return a + b", base=True, path="solution.py")
    assert (result.observation, result.checks_passed) == ("ok", True)
    result = ask(deliver, "submit", 4)
    assert (result.status, result.observation) == ("ok", "")
    assert result.diff is not None
    assert admit(result.diff, FIXTURE.base_tree, FIXTURE.allowed_globs).tree == {"solution.py": ADD_FIX}
    assert len(deliver.done) == 5
    end(deliver)


def test_probing_in_a_tool_call_is_noted_with_its_result(host: JailHost) -> None:
    """What a policy looks for is seen where it acts, whether or not the call is refused."""
    deliver = made(host)
    assert ask(deliver, "test", 0).findings == ()
    result = ask(deliver, "edit", 1, line=2, text="return a + b if 'pytest' in __import__('sys').modules else 0")
    assert result.findings == ("test_probe",)
    result = ask(deliver, "read", 2, path=".git/HEAD")
    assert (result.status, result.findings) == ("refused", ("history_probe",))
    end(deliver)


OBSERVED = {
    "raises": ("return a.x", "FAIL 1,2 want 3 raises AttributeError"),
    "syntax": ("return (", "SyntaxError line 2"),
    "spin": ("while True: pass", "FAIL 1,2 want 3 no answer"),
    "spin in C": ("return sum(range(10 ** 12))", "FAIL 1,2 want 3 no answer"),
    "exit": ("import os; os._exit(0)", "FAIL 1,2 want 3 no answer"),
    "memory": ("return len(b'x' * (300 << 20))", "FAIL 1,2 want 3 "),
    "other type": ("return object()", "FAIL 1,2 want 3 got a value of another type"),
    "print": ("print('ok'); return a + b", "ok"),
    "flood": ("print('x' * (1 << 20)); return a + b", "too much output"),
    "kills its parent": ("import os; os.kill(1, 9); return a + b", "ok"),
    "daemon": ("import os; os.fork() or __import__('time').sleep(60); return a + b", "ok"),
}


@pytest.mark.parametrize("name", OBSERVED)
def test_what_the_policy_is_told(host: JailHost, name: str) -> None:
    text, expected = OBSERVED[name]
    deliver = made(host)
    result = ask(deliver, "edit", 0, line=2, text=text)
    assert result.status == "ok"
    assert result.observation.startswith(expected)
    # Whatever that was, the workspace goes on.
    assert ask(deliver, "edit", 1, line=2, text="return a + b").observation == "ok"
    end(deliver)


REFUSED = {
    "unknown tool": ("shell", {}, "no tool 'shell'; tools: test read edit replace submit"),
    "line": ("edit", {"line": 9, "text": "x"}, "line 9 is out of range 1..2"),
    "missing": ("edit", {"line": 1}, "argument text is missing"),
    "path": ("edit", {"line": 1, "text": "x", "path": "../etc/passwd"}, "no file ../etc/passwd; files: solution.py"),
    "many": ("replace", {"old": "a", "new": "b"}, "old text occurs"),
    "long": ("edit", {"line": 1, "text": "x" * 9000}, "text longer than 8192 characters"),
    "extra": ("test", {"x": "y"}, "no argument 'x'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_say_what_is_wrong_and_change_nothing(host: JailHost, name: str) -> None:
    tool, arguments, message = REFUSED[name]
    deliver = made(host)
    result = ask(deliver, tool, 0, raw=json.dumps(arguments))
    assert (result.status, result.diff) == ("refused", None)
    assert result.observation.startswith(message)
    assert ask(deliver, "submit", 1).diff == ""
    end(deliver)


def test_a_tool_that_the_fixture_does_not_offer_is_refused(host: JailHost) -> None:
    fixture = add_fixture(tools=("edit", "submit"))
    deliver = made(host, fixture)
    assert ask(deliver, "test", 0, fixture).status == "refused"
    assert ask(deliver, "submit", 1, fixture).status == "ok"
    end(deliver)


def test_a_repeated_command_is_answered_from_memory(host: JailHost) -> None:
    deliver = made(host)
    first = ask(deliver, "edit", 0, line=2, text="return a + b")
    assert ask(deliver, "edit", 0, line=2, text="return a + b") == first
    submit = ask(deliver, "submit", 1)
    assert ask(deliver, "submit", 1) == submit
    assert len(deliver.done) == 4
    end(deliver)


def test_a_duplicate_in_flight_is_answered_once_and_both_are_finished(host: JailHost) -> None:
    deliver = made(host)
    one = command(FIXTURE, "test", 0)
    deliver.give(one, run=False)
    deliver.give(one, run=False)
    deliver.give(command(FIXTURE, "submit", 1), run=False)
    deliver.run_jobs()
    assert [result.tool for result in deliver.outputs] == ["test", "submit"]
    assert len(deliver.done) == 3
    end(deliver)


def test_a_lost_workspace_says_so(host: JailHost) -> None:
    deliver = made(host)
    assert ask(deliver, "edit", 3, line=2, text="x").status == "workspace_lost"
    ask(deliver, "test", 0)
    deliver.core.revoked(frozenset({0}))
    assert ask(deliver, "test", 1).status == "workspace_lost"
    end(deliver)


def test_a_new_attempt_starts_fresh_and_the_old_one_is_gone(host: JailHost) -> None:
    deliver = made(host)
    ask(deliver, "edit", 0, line=2, text="return a + b")
    deliver.give(command(FIXTURE, "submit", 0, attempt=1, operation_id="run/00000000/0.1.0.0"))
    assert deliver.outputs[-1].diff == ""
    assert ask(deliver, "submit", 1).status == "workspace_lost"
    end(deliver)


def test_idle_workspaces_expire_and_their_jails_end(host: JailHost) -> None:
    deliver = made(host, idle_s=10.0)
    ask(deliver, "test", 0)
    deliver.apply(deliver.core.tick(2_000 + 10_001))
    assert ask(deliver, "test", 1).status == "workspace_lost"
    assert host.free == 8


def test_more_workspaces_than_jails_share_them_without_losing_anything(host: JailHost) -> None:
    deliver = made(host, workspaces=2)
    for member in range(5):
        record = command(FIXTURE, "edit", 0, json.dumps({"line": 2, "text": f"return a * {member}"}),
                         trial_id=f"run/00000000/{member}", operation_id=f"o{member}.0")  # fmt: skip
        deliver.give(record)
        assert host.free >= 8 - 3
    for member in range(5):
        deliver.give(command(FIXTURE, "submit", 1, trial_id=f"run/00000000/{member}", operation_id=f"o{member}.1"))
        assert f"return a * {member}" in deliver.outputs[-1].diff
    end(deliver)
    assert host.free == 8


def test_infrastructure_is_named_and_is_not_the_policys_fault(host: JailHost, monkeypatch: pytest.MonkeyPatch) -> None:
    deliver = made(host)

    def broken(limits: Limits, options: Options) -> None:
        raise JailFault("control group cannot be made")

    monkeypatch.setattr(host, "launch", broken)
    result = ask(deliver, "test", 0)
    assert (result.status, result.infra_error) == ("infra", "control group cannot be made")
    other = add_fixture(task_id="tiny/other")
    deliver.give(command(other, "test", 0, trial_id="run/00000000/7"))
    assert deliver.outputs[-1].infra_error == "unknown_task"
    wrong = add_fixture(first_failure="another")
    deliver.give(command(wrong, "test", 0, trial_id="run/00000000/8"))
    assert deliver.outputs[-1].infra_error == "fixture_mismatch"


def test_long_observations_are_cut_and_say_so(host: JailHost) -> None:
    deliver = made(host)
    deliver.give(command(FIXTURE, "read", 0, output_bytes=10))
    assert (deliver.outputs[-1].observation, deliver.outputs[-1].truncated) == ("1 def add(", True)
    end(deliver)


def large() -> Fixture:
    """`add` in a tree that is large enough to be shown to the jail; it is right when a helper's file says so."""
    tree = {f"helpers/part{number}.py": f"NUMBER = {number}\n" for number in range(10)}
    source = "from helpers.part3 import NUMBER\n\n\ndef add(a, b):\n    return a + b + NUMBER - 4\n"
    return add_fixture(base_tree={"solution.py": source, **tree}, entry="solution:add",
                       allowed_globs=("solution.py", "helpers/*.py"))  # fmt: skip


def test_a_larger_tree_is_shown_to_the_jail_and_edits_are_what_it_runs(host: JailHost) -> None:
    fixture = large()
    deliver = made(host, fixture)
    assert ask(deliver, "test", 0, fixture).observation == "FAIL 1,2 want 3 got 2"
    result = ask(deliver, "edit", 1, fixture, line=1, text="NUMBER = 4", path="helpers/part3.py")
    assert (result.observation, result.checks_passed) == ("ok", True)
    # What a run did to the tree is gone at the next: here the helper that it broke, and a module that it added.
    spoil = "    open('/tmp/tree/helpers/part3.py', 'w').write('NUMBER = 9'); open('/tmp/tree/math.py', 'w')"
    ask(deliver, "edit", 2, fixture, line=5, text=f"{spoil}\n    return a + b + NUMBER - 4", path="solution.py")
    assert ask(deliver, "edit", 3, fixture, line=5, text="    import math", path="solution.py").observation == "ok"
    diff = ask(deliver, "submit", 4, fixture).diff
    assert diff is not None
    assert sorted(admit(diff, fixture.base_tree, fixture.allowed_globs).tree) == sorted(fixture.base_tree)
    end(deliver)


def test_a_jail_that_a_workspace_lets_go_serves_the_next(host: JailHost) -> None:
    fixture = add_fixture(deterministic=False)
    pool = Pool(host, LIMITS, 1)
    core = SandboxCore(Sandbox(pool=1), lambda taskset, task: fixture, Operator(pool, Known()), "gen", lambda: 2_000)
    deliver = Deliver(core, "sandbox.command.v1")
    for member in range(3):
        trial = f"run/00000000/{member}"
        deliver.give(command(fixture, "test", 0, trial_id=trial, operation_id=f"o{member}.0"))
        deliver.give(command(fixture, "submit", 1, trial_id=trial, operation_id=f"o{member}.1"))
        assert [result.status for result in deliver.outputs[-2:]] == ["ok", "ok"]
    if host.private_mounts:
        assert (pool.counts["fresh"], pool.counts["reused"], pool.counts["reset"]) == (1, 2, 3)
    pool.close()
    assert host.free == 8


def test_a_service_that_waits_keeps_jails_ready(host: JailHost) -> None:
    pool = Pool(host, LIMITS, 2)
    core = SandboxCore(Sandbox(pool=2), lambda taskset, task: FIXTURE, Operator(pool, Known()), "gen", lambda: 2_000)
    deliver = Deliver(core, "sandbox.command.v1")
    for _ in range(4):
        deliver.apply(core.tick(2_000))
    assert (pool.ready, pool.counts["fresh"]) == (2, 2)
    pool.close()


def test_the_same_source_is_checked_once_where_the_fixture_is_deterministic(host: JailHost) -> None:
    deliver = made(host)
    assert ask(deliver, "test", 0).cpu_s is not None or host.layout.version == 0
    assert ask(deliver, "test", 1).cpu_s is None
    end(deliver)
    restless = add_fixture(deterministic=False)
    deliver = made(host, restless)
    ask(deliver, "test", 0, restless)
    assert ask(deliver, "test", 1, restless).cpu_s is not None or host.layout.version == 0
    end(deliver)
