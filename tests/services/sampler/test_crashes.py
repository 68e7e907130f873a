"""Whatever order records cross in and wherever a sampler is killed, every trial ends once and no token is resampled."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.rollout import INFRA_STOPS, Invocation
from schemas.topics import (
    POLICY_GATE,
    ROLLOUT_COMPLETED,
    ROLLOUT_INVOCATION,
    ROLLOUT_REQUESTED,
    SANDBOX_COMMAND,
    SANDBOX_RESULT,
)
from services.agent.context import TrialContext, prefix_digest
from services.agent.grammar import Malformed
from tests.services.sampler.world import INPUTS, World, decision, harness, requested, task_set

MEMBERS = 4
STEPS = {"deliver": 30, "serve": 10, "flush": 20, "sandbox": 10, "work": 10, "tick": 6, "commit": 6}
FAULTS = {"crash": 2, "zombie": 3, "redeliver": 1, "version": 1}


def step(world: World, choice: str) -> None:
    """One thing that can happen, at random where it has a choice."""
    rng, sampler = world.rng, world.sampler
    if choice == "deliver":
        order = rng.sample(INPUTS, len(INPUTS))
        if not any(sampler.deliver(topic) for topic in order):
            sampler.go_live()
    elif choice == "serve" and sampler.live:
        error = "engine fell over" if rng.random() < 0.05 else None
        sampler.serve(cut=rng.random() < 0.1, error=error)
    elif choice == "flush":
        sampler.flush()
    elif choice == "sandbox":
        if rng.random() < 0.03 and world.workspaces:
            world.workspaces.pop(rng.choice(list(world.workspaces)))
        world.sandbox("infra" if rng.random() < 0.03 else None)
    elif choice == "work":
        sampler.work()
    elif choice == "tick" and sampler.live:
        world.clock.seconds += rng.choice((0.1, 3.0, 12.0, 70.0))
        sampler.tick()
    elif choice == "commit":
        sampler.commit()
    elif choice == "crash":
        world.crash()
    elif choice == "zombie" and world.zombies:
        rng.choice(world.zombies).flush()
    elif choice == "redeliver":
        # A dispatch that crashed repeats itself within moments, not when the trial is long over and forgotten.
        again = requested(rng.randrange(MEMBERS))
        if not any(end.final_attempt for end in world.ends_of(again.trial_id)):
            world.topics.append(ROLLOUT_REQUESTED, again)
            while sampler.deliver(ROLLOUT_REQUESTED):
                pass
    elif choice == "version":
        world.topics.append(POLICY_GATE, decision(rng.randrange(4), rng.choice(("promoted", "promoted", "halted"))))


def check_ends(world: World) -> None:
    """Each trial: attempts 0..n, all but the last given up, the last one final, judged ones counted right.

    A dying sampler may give an attempt up while its successor goes on with it: what was given up is not judged.
    """
    for member in range(MEMBERS):
        trial = requested(member).trial_id
        ends = world.ends_of(trial)
        assert [e.attempt for e in ends] == list(range(len(ends)))
        assert [e.final_attempt for e in ends] == [False] * (len(ends) - 1) + [True]
        for end in ends:
            calls = world.calls_of(trial, end.attempt)
            assert [c.turn for c in calls] == list(range(len(calls)))
            if end.stop_reason in INFRA_STOPS:
                assert end.invocations <= len(calls)
                continue
            assert end.invocations == len(calls)
            assert end.policy_tokens == sum(len(c.sampled_ids) for c in calls)


def check_chains(world: World) -> None:
    """The first record of each call continues exactly what the records before it say, and commands are its actions."""
    for member in range(MEMBERS):
        trial = requested(member).trial_id
        for end in world.ends_of(trial):
            context = TrialContext(harness(), task_set().get("plus/1"))
            results = {r.operation_id: r for r in world.topics.of(SANDBOX_RESULT)}
            for call in world.calls_of(trial, end.attempt):
                assert call.prefix_digest == prefix_digest(context.prefix)
                action = context.after_invocation(call.sampled_ids)
                if isinstance(action, Malformed):
                    context.observe(action.message)
                    continue
                wanted = context.command(action)
                asked = f"{call.invocation_id}.0", f"{call.invocation_id}.2"
                issued = [c for c in world.commands_of(trial) if c.operation_id in asked]
                assert all((c.tool, c.arguments) == (wanted.tool, wanted.arguments) for c in issued)
                result = results.get(asked[0])
                if result is not None and result.status == "workspace_lost":
                    result = results.get(asked[1])
                if wanted.tool == "submit" or result is None or result.status != "ok":
                    break
                context.observe(result.observation)


def check_no_resampling(world: World) -> None:
    """No instance writes a call that it read when it took over, one that it had already written, or any of a trial that
    had come to its end by then."""
    for instance in [*world.zombies, world.sampler]:
        own = [r for r in instance.emitted if isinstance(r, Invocation)]
        ids = {r.invocation_id for r in own}
        assert not ids & instance.known_at_start
        assert not {r.trial_id for r in instance.emitted} & instance.ended_at_start
        for invocation_id in ids:
            same = [r.sampled_ids for r in own if r.invocation_id == invocation_id]
            assert all(np.array_equal(same[0], other) for other in same[1:])


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.integers(0, 900), faults=st.integers(0, 4))
def test_any_order_any_crash(seed: int, steps: int, faults: int) -> None:
    world = World(seed, operation_deadline_s=100.0, concurrency=3)
    world.topics.append(POLICY_GATE, decision(0))
    for member in range(MEMBERS):
        world.topics.append(ROLLOUT_REQUESTED, requested(member))
    weights = {**STEPS, **{name: weight * faults for name, weight in FAULTS.items()}}
    for choice in world.rng.choices(list(weights), list(weights.values()), k=steps):
        step(world, choice)
    world.topics.append(POLICY_GATE, decision(9))
    world.settle()
    check_ends(world)
    check_chains(world)
    check_no_resampling(world)
    assert world.uncommitted() == 0, "everything is finished with"


def test_a_killed_and_resumed_trial_extends_what_was_recorded() -> None:
    """The invocation records at the kill are, byte for byte, the beginning of those at the end."""
    for kill_after in range(1, 40):
        world = World(kill_after)
        world.topics.append(POLICY_GATE, decision(0))
        for member in range(MEMBERS):
            world.topics.append(ROLLOUT_REQUESTED, requested(member))
        rng = world.rng
        for _ in range(kill_after * 4):
            step(world, rng.choices(list(STEPS), list(STEPS.values()))[0])
        before = {(m, a): world.calls_of(requested(m).trial_id, a) for m in range(MEMBERS) for a in range(3)}
        written = len(world.topics.of(ROLLOUT_INVOCATION))
        world.crash()
        world.zombies.clear()
        world.settle()
        for (member, attempt), calls in before.items():
            after = world.calls_of(requested(member).trial_id, attempt)
            assert [c.invocation_id for c in after[: len(calls)]] == [c.invocation_id for c in calls]
            assert all(np.array_equal(a.sampled_ids, b.sampled_ids) for a, b in zip(calls, after, strict=False))
        fresh = world.topics.of(ROLLOUT_INVOCATION)[written:]
        old = {c.invocation_id for calls in before.values() for c in calls}
        assert not old & {c.invocation_id for c in fresh}, "recorded tokens were sampled again"
        check_ends(world)


def test_a_crash_after_everything_finished_does_nothing_again() -> None:
    world = World(3)
    world.topics.append(POLICY_GATE, decision(0))
    for member in range(MEMBERS):
        world.topics.append(ROLLOUT_REQUESTED, requested(member))
    world.settle()
    counts = {t.name: len(world.topics.of(t)) for t in (*INPUTS, SANDBOX_COMMAND)}
    world.committed = {ROLLOUT_COMPLETED.name: 0, ROLLOUT_REQUESTED.name: 0}
    world.crash()
    world.settle()
    assert counts == {t.name: len(world.topics.of(t)) for t in (*INPUTS, SANDBOX_COMMAND)}
