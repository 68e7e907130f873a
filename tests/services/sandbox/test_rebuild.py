"""A lost workspace of a deterministic fixture is made again from its history: no answer differs from a calm run's."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.codec import ContractViolation
from schemas.sandbox import SandboxCommand, SandboxResult
from services.runtime.jail.launcher import JailHost
from services.runtime.jail.limits import MIB, Limits
from services.runtime.settings import Sandbox
from services.sandbox.core import SandboxCore
from services.sandbox.pool import Pool
from services.sandbox.workspace import Known, Operator
from services.tasks.fixture import Fixture
from tests.services.jails import Deliver, add_fixture, command

TREE = {"solution.py": "def add(a, b):\n    c = a - b\n    return c\n", "notes.py": "# one\n# two\n"}
FIXTURE = add_fixture(base_tree=TREE, allowed_globs=("*.py",), entry="solution:add")
PATHS = st.sampled_from(["solution.py", "notes.py", "absent.py"])
TEXTS = st.sampled_from(
    ["c = a + b", "return a + b", "    return c", "", "if True:\n    c = 1", "(", "c\x00", "return b"]
)
ARGUMENTS = st.one_of(
    st.tuples(st.sampled_from(["test", "reset", "read", "shell"]), st.just({})),
    st.tuples(
        st.just("edit"),
        st.fixed_dictionaries(
            {"line": st.integers(0, 5), "text": TEXTS}, optional={"base": st.booleans(), "path": PATHS}
        ),
    ),
    st.tuples(
        st.just("replace"),
        st.fixed_dictionaries(
            {"old": st.sampled_from(["c", "a - b", "return c", "one", ""]), "new": TEXTS},
            optional={"base": st.booleans(), "path": PATHS},
        ),
    ),
)  # fmt: skip


def sandbox(operator: Operator, fixture: Fixture = FIXTURE) -> Deliver:
    core = SandboxCore(Sandbox(), lambda taskset, task: fixture, operator, "gen", lambda: 2_000)
    return Deliver(core, "sandbox.command.v1")


@pytest.fixture(scope="module")
def operator(host: JailHost) -> Operator:
    """One memory of observations for the module: jails run each source once, edits are made every time."""
    return Operator(Pool(host, Limits(memory_bytes=96 * MIB, processes=12, cpu_s=30), 0), Known())


def operation(tool: str, arguments: dict[str, object], sequence: int, fixture: Fixture = FIXTURE) -> SandboxCommand:
    return command(fixture, tool, sequence, json.dumps(arguments, sort_keys=True))


def ask(deliver: Deliver, asked: SandboxCommand) -> SandboxResult:
    deliver.give(asked)
    result = deliver.outputs[-1]
    assert isinstance(result, SandboxResult)
    assert result.operation_id == asked.operation_id
    return result


def again(lost: SandboxCommand, before: list[SandboxCommand]) -> SandboxCommand:
    """As the sampler asks for it after a loss."""
    history = tuple(json.dumps([one.tool, one.arguments]) for one in before)
    return replace(lost, operation_id=f"{lost.operation_id[:-1]}2", history=history)


def said(result: SandboxResult) -> tuple[object, ...]:
    """All that the policy, the verifier and the report read of a result."""
    return (
        result.sequence, result.tool, result.status, result.observation, result.truncated, result.checks_passed,
        result.diff, result.infra_error, result.findings,
    )  # fmt: skip


def end(deliver: Deliver) -> None:
    deliver.core.revoked(frozenset(range(8)))
    deliver.apply(deliver.core.tick(3_000))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(calls=st.lists(ARGUMENTS, min_size=1, max_size=7), losses=st.sets(st.integers(1, 7)), repeats=st.booleans())
def test_loss_at_any_point_changes_no_answer(operator: Operator, calls, losses, repeats) -> None:
    commands = [operation(*call, number) for number, call in enumerate([*calls, ("submit", {})])]
    calm = sandbox(operator)
    expected = [said(ask(calm, asked)) for asked in commands]
    deliver, found = sandbox(operator), []
    for number, asked in enumerate(commands):
        if number in losses:
            end(deliver)
            deliver = sandbox(operator)
        result = ask(deliver, asked)
        if result.status == "workspace_lost":
            assert number in losses
            once_more = again(asked, commands[:number])
            result = ask(deliver, once_more)
            if repeats:  # delivered again, and the first asking again too: nothing happens a second time
                count = len(deliver.outputs)
                assert ask(deliver, once_more) == result
                deliver.give(asked)
                assert len(deliver.outputs) == count + 1
        found.append(said(result))
    assert found == expected
    assert len(deliver.done) == deliver.offset, "every command that was read is finished with"
    end(calm)
    end(deliver)


def test_a_history_makes_the_workspace_anew_even_where_one_stands(operator: Operator) -> None:
    """The first asking was carried out after all: the second one must not apply it twice."""
    deliver = sandbox(operator)
    first = operation("edit", {"line": 2, "text": "c = a + b\nc = a + b"}, 0)
    second = operation("edit", {"line": 2, "text": ""}, 1)
    ask(deliver, first)
    ask(deliver, second)
    repeated = ask(deliver, again(second, [first]))
    assert (repeated.observation, repeated.status) == ("ok", "ok")
    diff = ask(deliver, operation("submit", {}, 2)).diff
    assert diff is not None
    assert "+    c = a + b\n" in diff
    end(deliver)


def test_a_workspace_that_missed_an_operation_is_lost(operator: Operator) -> None:
    deliver = sandbox(operator)
    ask(deliver, operation("test", {}, 0))
    assert ask(deliver, operation("test", {}, 2)).status == "workspace_lost"
    end(deliver)


def test_a_fixture_that_is_not_deterministic_is_never_made_again(operator: Operator) -> None:
    fixture = replace(FIXTURE, deterministic=False)
    deliver = sandbox(operator, fixture)
    first, second = operation("test", {}, 0, fixture), operation("test", {}, 1, fixture)
    assert ask(deliver, again(second, [first])).status == "workspace_lost"
    end(deliver)


@pytest.mark.parametrize("entry", ["", "{}", "[]", '["edit"]', '["edit", {}]', "[" * 100_000, '["edit", "{}", 1]'])
def test_a_history_that_is_none_breaks_the_contract_and_touches_nothing(operator: Operator, entry: str) -> None:
    deliver = sandbox(operator)
    ask(deliver, operation("test", {}, 0))
    with pytest.raises(ContractViolation, match="history"):
        deliver.give(replace(operation("test", {}, 1), history=(entry,)))
    assert ask(deliver, operation("test", {}, 1)).status == "ok"
    end(deliver)
