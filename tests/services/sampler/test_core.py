"""The sampler's core step by step: what it asks for, what it records, how each ending comes about."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from schemas.codec import ContractViolation
from schemas.topics import (
    POLICY_GATE,
    ROLLOUT_COMPLETED,
    ROLLOUT_INVOCATION,
    ROLLOUT_REQUESTED,
    SANDBOX_COMMAND,
    SANDBOX_RESULT,
)
from services.agent.context import prefix_digest
from services.runtime.core import Message, Position
from services.sampler import trial
from services.sampler.ledger import SETTLE_S
from services.sampler.policies import Policies
from services.sampler.trial import call_seed
from tests.services.sampler.world import INPUTS, World, command_result, decision, harness, key_of, requested, task_set


def started(*records, version: int | None = 0, **sampler) -> World:
    world = World(**sampler)
    if version is not None:
        world.topics.append(POLICY_GATE, decision(version))
    world.sampler.go_live()
    world.sampler.work()
    for record in records:
        world.topics.append(ROLLOUT_REQUESTED, record)
        world.sampler.deliver(ROLLOUT_REQUESTED)
    while world.sampler.work():
        pass
    return world


def act(world: World, text: str, **how) -> None:
    """One sampled action up to its record's return from the log."""
    assert world.sampler.serve(text, **how)
    world.sampler.flush(ROLLOUT_INVOCATION.name)
    assert world.sampler.deliver(ROLLOUT_INVOCATION)


def tool(world: World, status: str | None = None) -> None:
    """The command that was just issued, up to its result's return."""
    world.sampler.flush(SANDBOX_COMMAND.name)
    assert world.sandbox(status)
    assert world.sampler.deliver(SANDBOX_RESULT)


def end(world: World):
    world.sampler.flush(ROLLOUT_COMPLETED.name)
    assert world.sampler.deliver(ROLLOUT_COMPLETED)
    return world.topics.of(ROLLOUT_COMPLETED)[-1]


def test_a_whole_trial_is_recorded_token_for_token():
    world = started(requested(0))
    act(world, "test")
    tool(world)
    act(world, "edit 2: return a + 1")
    tool(world)
    act(world, "submit")
    tool(world)
    last = end(world)
    first, second, third = world.calls_of("t/00000000/0", 0)
    assert first.parent_id is None
    assert np.array_equal(first.appended_ids, harness().prompt_ids(task_set().get("plus/1")))
    assert second.parent_id == first.invocation_id
    prefix = np.concatenate([first.appended_ids, first.sampled_ids, second.appended_ids])
    assert second.prefix_digest == prefix_digest(prefix)
    assert second.prefix_length == len(prefix)
    prefix = np.concatenate([prefix, second.sampled_ids, third.appended_ids])
    assert third.prefix_digest == prefix_digest(prefix)
    assert [c.seed for c in (first, second, third)] == [call_seed(0, 0, turn) for turn in range(3)]
    assert [c.tool for c in world.commands_of("t/00000000/0")] == ["test", "edit", "submit"]
    assert [c.sequence for c in world.commands_of("t/00000000/0")] == [0, 1, 2]
    assert (last.stop_reason, last.final_attempt, last.invocations) == ("submitted", True, 3)
    assert last.diff == "diff of t/00000000/0.0.2.0"
    assert last.policy_tokens == sum(len(c.sampled_ids) for c in (first, second, third))
    assert last.policy_version == last.newest_version == 0
    assert last.tool_findings == ("edit_finding", "test_finding")
    world.settle()
    assert not world.sampler.watermarks.unfinished()


def test_nothing_is_acted_upon_before_it_stands_in_the_log():
    """A crash must never leave a command whose action was not recorded."""
    world = started(requested(0))
    world.sampler.serve("test")
    assert not world.sampler.outbox[SANDBOX_COMMAND.name]
    world.sampler.flush(ROLLOUT_INVOCATION.name)
    assert not world.sampler.outbox[SANDBOX_COMMAND.name]
    world.sampler.deliver(ROLLOUT_INVOCATION)
    assert len(world.sampler.outbox[SANDBOX_COMMAND.name]) == 1


def test_the_next_call_is_submitted_while_the_result_is_handled():
    world = started(requested(0))
    act(world, "test")
    world.sampler.flush(SANDBOX_COMMAND.name)
    world.sandbox()
    assert not world.sampler.calls
    world.sampler.deliver(SANDBOX_RESULT)
    assert [c.request_id for c in world.sampler.calls] == ["t/00000000/0.0.1"]


@pytest.mark.parametrize("text", ["nonsense", "edit 99: x"])
def test_a_malformed_action_is_a_turn_without_an_operation(text):
    world = started(requested(0))
    act(world, text)
    assert not world.sampler.outbox[SANDBOX_COMMAND.name]
    assert [c.request_id for c in world.sampler.calls] == ["t/00000000/0.0.1"]
    act(world, "submit")
    tool(world)
    assert end(world).malformed_actions == 1


def test_a_cut_call_is_malformed_and_recorded_without_a_stop_token():
    world = started(requested(0))
    act(world, "test", cut=True)
    assert world.calls_of("t/00000000/0", 0)[0].stop == "length"
    assert len(world.sampler.calls) == 1


def test_turn_budget_submits_the_workspace_as_it_stands():
    world = started(requested(0, max_turns=2))
    act(world, "test")
    tool(world)
    act(world, "edit 2: return a")
    tool(world)
    assert [c.operation_id for c in world.commands_of("t/00000000/0")] == ["t/00000000/0.0.0.0", "t/00000000/0.0.1.0"]
    tool(world)
    last = end(world)
    assert (last.stop_reason, last.diff) == ("turn_budget", "diff of t/00000000/0.0.1.1")


def test_token_budget_bounds_every_call_and_then_submits():
    world = started(requested(0, max_tokens=5))
    assert world.sampler.calls[0].max_tokens == 5
    act(world, "edit 2: return a + 1")
    tool(world)
    last = end(world)
    assert (last.stop_reason, last.policy_tokens, last.malformed_actions) == ("token_budget", 5, 1)


def test_wall_budget_counts_recorded_work_and_not_the_time_the_system_was_down():
    world = started(requested(0, wall_s=0.04))
    act(world, "test")
    world.clock.seconds += 3600
    tool(world)
    assert len(world.sampler.calls) == 1
    act(world, "test")
    tool(world)
    tool(world)
    assert end(world).stop_reason == "wall_budget"


def test_a_context_that_cannot_hold_more_is_compacted_and_says_so():
    world = started(requested(0, max_turns=30, max_tokens=2000))
    for _ in range(12):
        act(world, "edit 2: return a + 1")
        tool(world)
    calls = world.calls_of("t/00000000/0", 0)
    compacted = [c for c in calls if c.compaction]
    assert compacted
    for call in compacted:
        assert call.parent_id is None
        assert prefix_digest(call.appended_ids) == call.prefix_digest
    assert all(c.prefix_length + 24 <= 160 for c in calls)


def lose(world: World) -> None:
    """The command that was just issued finds no workspace."""
    world.sampler.flush(SANDBOX_COMMAND.name)
    world.workspaces.clear()
    assert world.sandbox("workspace_lost")
    assert world.sampler.deliver(SANDBOX_RESULT)


def test_a_lost_workspace_is_asked_for_again_once_with_what_was_done_in_it():
    world = started(requested(0))
    act(world, "test")
    tool(world)
    act(world, "edit 2: return a + 1")
    lose(world)
    done, lost, again = [*world.commands_of("t/00000000/0"), world.sampler.outbox[SANDBOX_COMMAND.name][0][0].record]
    assert again.history == (json.dumps([done.tool, done.arguments]),)
    assert (done.history, lost.history) == (None, None), "a trial that loses nothing sends no history"
    assert again == replace(lost, operation_id="t/00000000/0.0.1.2", history=again.history, issued_ms=again.issued_ms)
    world.crash()
    while any(world.sampler.deliver(topic) for topic in INPUTS):
        pass
    while world.sampler.work():
        pass
    taken_over = world.sampler.outbox[SANDBOX_COMMAND.name][0][0].record
    assert replace(taken_over, issued_ms=again.issued_ms) == again, "whoever takes over asks for the very same"
    tool(world)
    act(world, "submit")
    lose(world)
    tool(world)
    last = end(world)
    assert (last.stop_reason, last.attempt, last.diff) == ("submitted", 0, "diff of t/00000000/0.0.2.2")
    assert len(world.commands_of("t/00000000/0")[-1].history) == 2
    assert [c.turn for c in world.topics.of(ROLLOUT_INVOCATION)] == [0, 1, 2]


def test_a_workspace_that_is_lost_even_with_its_history_is_a_new_attempt():
    world = started(requested(0))
    act(world, "test")
    tool(world)
    act(world, "test")
    lose(world)
    tool(world, "workspace_lost")
    first = end(world)
    assert (first.stop_reason, first.final_attempt, first.attempt) == ("sandbox_lost", False, 0)


@pytest.mark.parametrize("status", ["workspace_lost", "infra"])
def test_a_lost_workspace_that_cannot_be_made_again_is_a_new_attempt_and_the_last_one_is_final(status, monkeypatch):
    monkeypatch.setattr(trial, "MAX_HISTORY_BYTES", -1)
    world = started(requested(0), attempts=2)
    act(world, "test")
    tool(world, status)
    first = end(world)
    assert (first.stop_reason, first.final_attempt, first.attempt) == ("sandbox_lost", False, 0)
    assert [c.request_id for c in world.sampler.calls] == ["t/00000000/0.1.0"]
    assert world.sampler.calls[0].seed != call_seed(0, 0, 0)
    act(world, "test")
    tool(world, status)
    last = end(world)
    assert (last.stop_reason, last.final_attempt, last.attempt, last.diff) == ("sandbox_lost", True, 1, None)
    world.settle()
    assert len(world.topics.of(ROLLOUT_COMPLETED)) == 2


def test_an_engine_failure_is_never_the_policys_fault():
    world = started(requested(0))
    world.sampler.serve(error="out of memory")
    first = end(world)
    assert (first.stop_reason, first.infra_error, first.policy_version) == ("engine", "out of memory", -1)
    assert [c.request_id for c in world.sampler.calls] == ["t/00000000/0.1.0"]


def test_a_silent_sandbox_is_asked_once_more_and_then_given_up():
    world = started(requested(0), operation_deadline_s=10.0)
    act(world, "test")
    world.sampler.flush(SANDBOX_COMMAND.name)
    world.clock.seconds += 11
    world.sampler.tick()
    world.sampler.flush(SANDBOX_COMMAND.name)
    once, again = world.commands_of("t/00000000/0")
    assert once.operation_id == again.operation_id
    world.clock.seconds += 9
    world.sampler.tick()
    assert not world.sampler.outbox[ROLLOUT_COMPLETED.name]
    world.clock.seconds += 2
    world.sampler.tick()
    first = end(world)
    assert first.stop_reason == "sandbox_lost"
    assert (first.outstanding_operations, first.outstanding_owner) == (("t/00000000/0.0.0.0",), "sandbox")


def test_a_silent_engine_fails_the_attempt_and_its_late_answer_is_dropped():
    world = started(requested(0, wall_s=5.0))
    late = world.sampler.calls[0]
    world.clock.seconds += 6
    world.sampler.tick()
    assert end(world).stop_reason == "engine"
    assert world.sampler.calls[0] is late
    world.sampler.serve("submit")
    assert not world.sampler.outbox[ROLLOUT_INVOCATION.name]


def test_a_result_that_comes_after_the_attempt_was_given_up_changes_nothing():
    world = started(requested(0), operation_deadline_s=1.0)
    act(world, "test")
    world.sampler.flush(SANDBOX_COMMAND.name)
    for _ in range(2):
        world.clock.seconds += 2
        world.sampler.tick()
    world.sandbox()
    world.sampler.deliver(SANDBOX_RESULT)
    assert end(world).stop_reason == "sandbox_lost"
    assert [c.request_id for c in world.sampler.calls] == ["t/00000000/0.1.0"]


def test_an_unusable_task_ends_the_trial_with_words():
    world = started(requested(0, task_id="plus/2"))
    last = end(world)
    assert last.final_attempt
    assert last.stop_reason == "engine"
    assert "plus/1" in last.infra_error
    other = started(requested(0, fixture_digest="sha256:other"))
    assert "the request says sha256:other" in end(other).infra_error


def test_concurrency_bounds_the_trials_and_the_rest_wait_in_order():
    world = started(*(requested(m) for m in range(4)), concurrency=2)
    assert [c.request_id for c in world.sampler.calls] == ["t/00000000/0.0.0", "t/00000000/1.0.0"]
    act(world, "submit")
    tool(world)
    end(world)
    assert [c.request_id for c in world.sampler.calls] == ["t/00000000/1.0.0", "t/00000000/2.0.0"]


def test_nothing_is_sampled_before_the_first_promoted_version():
    world = started(requested(0), version=None)
    assert not world.sampler.calls
    world.topics.append(POLICY_GATE, decision(0, "held"))
    world.sampler.gates()
    assert not world.sampler.jobs
    world.topics.append(POLICY_GATE, decision(0))
    world.sampler.gates()
    world.sampler.work()
    while world.sampler.work():
        pass
    assert len(world.sampler.calls) == 1


def test_a_trial_waits_for_the_version_that_it_was_dispatched_under():
    """Older weights would only make it stale: with a bound of 0 it could never be trained on."""
    world = started(requested(0), requested(1, version=1))
    assert [c.request_id for c in world.sampler.calls] == ["t/00000000/0.0.0"]
    world.topics.append(POLICY_GATE, decision(1))
    world.sampler.gates()
    assert len(world.sampler.calls) == 1
    world.sampler.work()
    assert [c.request_id for c in world.sampler.calls] == ["t/00000000/0.0.0", "t/00000000/1.0.0"]


def test_a_halted_version_is_left_at_once_for_the_last_promoted_one():
    world = started(requested(0))
    world.topics.append(POLICY_GATE, decision(1))
    world.sampler.gates()
    world.sampler.work()
    act(world, "test")
    world.topics.append(POLICY_GATE, decision(1, "halted"))
    world.sampler.gates()
    tool(world)
    assert not world.sampler.calls, "the halted weights must sample nothing more"
    world.sampler.work()
    assert world.sampler.engine_version == 0
    assert [c.request_id for c in world.sampler.calls] == ["t/00000000/0.0.1"]


def test_the_version_is_the_one_that_the_engine_reports():
    world = started(requested(0))
    act(world, "test")
    tool(world)
    world.sampler.engine_version = 7
    act(world, "submit")
    tool(world)
    last = end(world)
    assert (last.policy_version, last.newest_version) == (0, 7)


def test_a_failed_load_is_tried_again():
    world = World()
    world.topics.append(POLICY_GATE, decision(0))
    real, world.sampler.core._ports = world.sampler.core._ports, None
    fails = [OSError("store down")]

    def load(gate):
        if fails:
            raise fails.pop()
        return real.load(gate)

    world.sampler.core._ports = type(real)(real.engine, real.submit, load, real.tasks, real.put_diff)
    world.topics.append(ROLLOUT_REQUESTED, requested(0))
    world.sampler.deliver(ROLLOUT_REQUESTED)
    world.sampler.go_live()
    world.sampler.work()
    world.sampler.tick()
    assert not world.sampler.jobs
    world.clock.seconds += 3
    world.sampler.tick()
    while world.sampler.work():
        pass
    assert len(world.sampler.calls) == 1


def test_redelivered_requests_and_results_are_harmless():
    world = started(requested(0), requested(0))
    assert len(world.sampler.calls) == 1
    act(world, "test")
    tool(world)
    world.topics.append(SANDBOX_RESULT, world.topics.of(SANDBOX_RESULT)[0])
    world.sampler.deliver(SANDBOX_RESULT)
    act(world, "submit")
    tool(world)
    end(world)
    world.topics.append(ROLLOUT_REQUESTED, requested(0))
    world.sampler.deliver(ROLLOUT_REQUESTED)
    assert not world.sampler.calls
    world.settle()
    assert len(world.topics.of(ROLLOUT_COMPLETED)) == 1
    assert not world.sampler.watermarks.unfinished()


def test_a_recorded_call_of_another_prefix_fails_the_attempt_instead_of_mixing():
    world = started(requested(0))
    world.sampler.serve("test")
    output, _ = world.sampler.outbox[ROLLOUT_INVOCATION.name][0]
    world.topics.append(ROLLOUT_INVOCATION, replace(output.record, prefix_digest="sha256:other"))
    world.sampler.deliver(ROLLOUT_INVOCATION)
    first = end(world)
    assert first.stop_reason == "engine"
    assert "another prefix" in first.infra_error


def test_a_large_candidate_goes_to_the_object_store():
    world = started(requested(0))
    act(world, "submit")
    world.sampler.flush(SANDBOX_COMMAND.name)
    big = command_result(world.topics.of(SANDBOX_COMMAND)[0])
    world.topics.append(SANDBOX_RESULT, replace(big, diff="+" * 300_000))
    world.sampler.deliver(SANDBOX_RESULT)
    assert world.sampler.work()
    last = end(world)
    assert last.diff is None
    assert last.diff_uri == key_of("+" * 300_000)
    assert last.diff_digest.startswith("sha256:")


def test_an_end_is_kept_until_no_open_request_lies_below_it():
    """Else a crash would hand out the finished trial's request again, without the record that says it is finished."""
    world = started(requested(0), requested(1))
    world.sampler.calls.rotate(-1)
    act(world, "submit")
    tool(world)
    end(world)
    for _ in range(3):
        world.clock.seconds += SETTLE_S + 1
        world.sampler.tick()
    world.sampler.commit()
    assert world.committed.get(ROLLOUT_COMPLETED.name, 0) == 0
    world.settle()
    assert world.uncommitted() == 0


def test_a_trial_id_that_is_none_is_a_broken_contract():
    world = started()
    record = requested(0, trial_id="nonsense")
    with pytest.raises(ContractViolation):
        world.sampler.core.handle(Message(Position(ROLLOUT_REQUESTED.name, 0, 0), 0, "", {}, record, 1), 0)


def test_policies_prefer_the_newest_usable_version():
    policies = Policies()
    assert policies.target is None
    for version, verdict in ((0, "promoted"), (1, "held"), (2, "promoted"), (3, "halted")):
        policies.note(decision(version, verdict))
    assert policies.target.policy_version == 2
    policies.note(decision(3, "released"))
    assert policies.next_load(0.0).policy_version == 3
    assert policies.next_load(0.0) is None, "one load at a time"
    policies.failed(0.0)
    assert policies.next_load(1.0) is None
    assert policies.next_load(2.5).policy_version == 3
    policies.finish(3)
    assert policies.ready_for(3)
    assert not policies.ready_for(4)
