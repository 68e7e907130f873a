"""Every core and every fold over a run reads legal records with hostile values: none breaks, none waits for ever, what
is healthy goes on, and the audit balances or names the lie."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path

import pytest

from schemas.evolution import all_types, example
from schemas.group import GroupAdmission, GroupClosed
from schemas.policy import EvaluationResult, PolicyGate
from schemas.record import Record
from schemas.rollout import RolloutRequested
from schemas.verification import VerificationVerdict
from services.admission.core import PATIENCE_MS, AdmissionCore
from services.closure.cohort import Rule
from services.closure.core import ClosureCore
from services.gate.core import GateCore
from services.gate.evaluation import Evaluations
from services.gate.findings import Finding
from services.monitor import conversation, conversation_text, facts, verdicts
from services.monitor.progress import Progress
from services.monitor.report_text import Facts as Report
from services.monitor.report_text import page
from services.monitor.texts import Texts
from services.recorder.core import Limits as RecorderLimits
from services.recorder.core import RecorderCore
from services.runtime.core import Position, RawMessage
from services.runtime.ledger import audit
from services.runtime.segments import Raw
from services.runtime.settings import RunSettings, Sandbox
from services.sandbox.core import SandboxCore
from services.sandbox.workspace import Done
from tests.services import jails
from tests.services.closure import records as made
from tests.services.dispatch.world import make_core as dispatch_core
from tests.services.hostile import Fed, hostile, stream, wire
from tests.services.sampler import world as sampler_world
from tests.services.trainer import core_world as trainer_world
from tests.services.verifier.records import canary
from tests.services.verifier.test_core import FIXTURE
from tests.services.verifier.test_core import made as verifier

SEEDS = range(8)
COUNT = 250
HEALTHY = 77


def request(group: int, member: int) -> Record:
    return made.request(group, member, 2)


def evaluation(group: int, member: int) -> Record:
    inputs = '{"cohort": {"heldout_bugs": 1}}'
    return made.request(group, member, 2, split="eval", task_set="heldout_bugs", selection_inputs=inputs)


def verdict(group: int, member: int) -> Record:
    return made.verdict(group, member, ("pass", "fail", "unknown")[member % 3])


def eval_verdict(group: int, member: int) -> Record:
    return made.verdict(group, member, "pass", split="eval")


def closed(group: int, member: int) -> Record:
    return made.closed(group, ("pass", "fail"))


def admission(group: int, member: int) -> Record:
    return made.admission(made.closed(group, ("pass", "fail")))


def control(group: int, member: int) -> Record:
    return random.Random(group * 3 + member).choice((
        made.published(group), made.gate(group), made.update(group, (group,)), made.result(group, "heldout_bugs"),
        made.alarm("warn"), canary("audit", "fail", group),
    ))  # fmt: skip


def others(group: int, member: int) -> Record:
    """A record of any type in this run, as the golden examples have it."""
    kind = random.Random(group * 3 + member).choice(list(all_types().values()))
    names = {"run_id": "run", "group_id": f"run/{group:08d}", "trial_id": f"run/{group:08d}/{member}"}
    known = {f.name for f in dataclasses.fields(kind.cls)}
    return dataclasses.replace(example(kind), **{name: value for name, value in names.items() if name in known})


EVERYTHING = [request, evaluation, verdict, eval_verdict, closed, admission, control, others,
              lambda g, m: made.completed(g, m)]  # fmt: skip


@pytest.mark.parametrize("seed", SEEDS)
def test_closure(seed):
    fed = Fed(ClosureCore("run", Rule(), 10_000))
    fed.core.assigned(frozenset({0}))
    records = list(stream([request, verdict, closed], random.Random(seed), COUNT))
    fed.give(records[:100])
    fed.give([made.request(HEALTHY, m, 2) for m in range(2)])
    fed.live()
    fed.give(records[100:])
    fed.give([made.verdict(HEALTHY, 0), made.verdict(HEALTHY, 1, "fail")])
    fed.pass_time(30)
    assert fed.core.open_groups == 0, "every group ends by its deadline"
    (healthy,) = [group for group in fed.of(GroupClosed) if group.group_id.endswith(f"{HEALTHY:08d}")]
    assert healthy.member_verdicts == ("pass", "fail")
    for group in fed.of(GroupClosed):
        assert all(reward is None or -1 <= reward <= 2 for reward in group.member_rewards)


@pytest.mark.parametrize("seed", SEEDS)
def test_admission(seed):
    fed = Fed(AdmissionCore("run", 2))
    fed.core.assigned(frozenset({0}))
    fed.give([made.published(3)])
    fed.give(list(stream([closed, admission, lambda g, m: made.gate(g + 10)], random.Random(seed), COUNT)))
    fed.live()
    fed.give([made.closed(HEALTHY, ("pass", "fail"), member_versions=(3, 3))])
    fed.pass_time(2 * PATIENCE_MS // 1000)
    assert fed.core.waiting_groups == 0
    (healthy,) = [one for one in fed.of(GroupAdmission) if one.group_id.endswith(f"{HEALTHY:08d}")]
    assert (healthy.decision, healthy.trainer_version) == ("admitted", 3)


@pytest.mark.parametrize("seed", SEEDS)
def test_dispatch(seed):
    fed = Fed(dispatch_core())
    inputs = [request, evaluation, admission, lambda g, m: made.gate(g), lambda g, m: made.alarm("warn")]
    records = list(stream(inputs, random.Random(seed), COUNT))
    fed.give(records[:150])
    fed.live()
    fed.give([made.gate(0), *records[150:]])
    fed.pass_time(600)
    assert fed.of(RolloutRequested) or fed.core.finished or fed.core.facts.open


@pytest.mark.parametrize("seed", SEEDS)
def test_gate(seed):
    check = [Finding("entropy", 0.5, 0.02, True)]
    core = GateCore("run", lambda published: check, Evaluations("run", 100_000), lambda: 1_000_000)
    fed = Fed(core)
    inputs = [evaluation, eval_verdict, request, verdict, lambda g, m: made.result(g + 50, "heldout_bugs")]
    fed.give(list(stream(inputs, random.Random(seed), COUNT)))
    fed.live()
    inputs = '{"cohort": {"mine": 1}}'
    asked = {"split": "eval", "task_set": "mine", "selection_inputs": inputs, "policy_version": 9}
    fed.give([made.published(0), *[made.request(HEALTHY, m, 2, **asked) for m in range(2)]])
    fed.give([made.verdict(HEALTHY, m, "pass", split="eval") for m in range(2)])
    fed.pass_time(300)
    assert [gate.policy_version for gate in fed.of(PolicyGate)] == [0]
    assert not core.waiting, "every evaluation ends by its deadline"
    (healthy,) = [result for result in fed.of(EvaluationResult) if result.task_set == "mine"]
    assert (healthy.pass_at_1, healthy.policy_version) == (1.0, 9)


@pytest.mark.parametrize("seed", SEEDS)
def test_verifier(seed):
    rng = random.Random(seed)
    fed = Fed(verifier().core, 2_000)

    def completed(group, member):
        return jails.completed(FIXTURE, member)

    given = list(stream([completed, verdict, lambda g, m: canary("audit", "fail", g)], rng, COUNT))
    fed.give(given)
    fed.give([jails.completed(FIXTURE, 9)])
    fed.pass_time(10**6)
    judged = [one for one in fed.of(VerificationVerdict) if one.verdict != "pending"]
    assert [one.verdict for one in judged if one.trial_id.endswith("/9")] == ["pass"]
    assert len({(one.trial_id, one.attempt) for one in judged}) == len(judged)
    assert all(one.reward is None or 0 <= one.reward <= 1 for one in judged)


class Operates:
    """Carries out nothing and says so; the tools have tests of their own."""

    short = False

    def operate(self, workspace, operation, history=()):
        return Done(observation=f"{operation.tool} done")

    def let_go(self, warm):
        pass

    def fill(self):
        return False


@pytest.mark.parametrize("seed", SEEDS)
def test_sandbox(seed):
    def find(taskset, task_id):
        return {FIXTURE.task_id: FIXTURE}[task_id]

    def command(group, member):
        trial = f"run/{group:08d}/{member}"
        ours = {"group_id": f"run/{group:08d}", "trial_id": trial, "operation_id": f"{trial}.0.0.0"}
        return jails.command(FIXTURE, "test", 0, **ours)

    fed = Fed(SandboxCore(Sandbox(), find, Operates(), "gen", lambda: 2_000))
    fed.give(list(stream([command], random.Random(seed), COUNT)))
    fed.give([command(HEALTHY, 0)])
    fed.pass_time(10**6)
    assert fed.outputs[-1].trial_id == f"run/{HEALTHY:08d}/0"
    assert fed.outputs[-1].status == "ok"


@pytest.mark.parametrize("seed", SEEDS)
def test_sampler(seed):
    """Everything that a sampler reads; the healthy trial gets its first call, and every wait ends."""
    rng = random.Random(seed)
    world = sampler_world.World(concurrency=500)
    fed = Fed(world.sampler.core)
    asked = sampler_world.requested

    def invocation(group, member):
        trial = f"t/{group:08d}/{member}"
        return trainer_world.calls(trial)[rng.randrange(2)]

    def result(group, member):
        trial = f"t/{group:08d}/{member}"
        other = {"run_id": "t", "group_id": f"t/{group:08d}", "trial_id": trial, "operation_id": f"{trial}.0.0.0"}
        command = jails.command(FIXTURE, "test", 0, **other)
        return sampler_world.command_result(command)

    def ended(group, member):
        trial = f"t/{group:08d}/{member}"
        return dataclasses.replace(
            made.completed(group, member), run_id="t", group_id=trial.rpartition("/")[0], trial_id=trial
        )

    kinds = [lambda g, m: asked(m, group=g), invocation, result, ended]
    records = list(stream(kinds, rng, COUNT))
    fed.give(records[:100], sampler_world.PARTITION)
    fed.give([sampler_world.decision(0)], 0)
    fed.live()
    fed.give(records[100:], sampler_world.PARTITION)
    fed.give([asked(0, group=HEALTHY)], sampler_world.PARTITION)
    assert f"t/{HEALTHY:08d}/0.0.0" in {call.request_id for call in world.sampler.calls}
    for _ in range(12):
        world.clock.seconds += 400
        before = len(fed.outputs)
        fed.pass_time(1)
        back = [one for record in fed.outputs[before:] if (one := wire(record)) is not None]
        own = (type(asked(0)), type(ended(0, 0)), type(invocation(0, 0)))
        fed.give([record for record in back if isinstance(record, own)], sampler_world.PARTITION)
    assert world.sampler.core.active_trials == world.sampler.core.waiting_trials == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_trainer(seed, tmp_path):
    """Hostile groups are excluded or wait for what they claim; four healthy ones make two versions."""
    rng = random.Random(seed)
    world = trainer_world.World(tmp_path, updates=2)
    for number in range(40, 44):
        world.group(number)
    made_up = [
        lambda g, m: trainer_world.calls(f"t/{g:08d}/{m}")[rng.randrange(2)],
        lambda g, m: trainer_world.admission(g),
    ]
    for record in stream(made_up, rng, COUNT):
        kind = "rollout.invocation.v1" if record.TYPE.name == "rollout.invocation" else "group.admission.v1"
        world.logs[kind, int(record.group_id[-8:]) % trainer_world.PARTITIONS].append(record)
    trainer = world.start()
    while trainer.step():
        pass
    world.clock.seconds += 100
    trainer.tick()
    while trainer.step():
        pass
    trained = [group for _, groups, _ in world.versions() for group in groups]
    assert len(trained) == len(set(trained))
    assert len(world.versions()) == 3


@pytest.mark.parametrize("seed", SEEDS)
def test_recorder(seed):
    """It takes whatever there is: nothing of a record is believed but its size."""
    stored = []
    rng = random.Random(seed)

    def store(place, records):
        stored.append(records)
        return 1

    core = RecorderCore(RecorderLimits(4096, 1000, 10**9), store, lambda gone: None, lambda topic: False)
    fed = Fed(core)
    for offset in sorted(rng.sample(range(10_000), 200)):
        raw = Raw(offset, rng.choice((0, -1, 2**62)), rng.choice((None, b"")), rng.choice((None, b"x" * 3000)), ())
        fed.apply(core.handle_raw(RawMessage(Position("a", 0, offset), raw, offset == 0), fed.now_ms))
    fed.pass_time(10**6)
    assert sum(map(len, stored)) == 200


@pytest.mark.parametrize("seed", SEEDS)
def test_what_people_look_at(seed, tmp_path):
    """The folds of report, progress, verdicts, tap and trial; the audit balances or names the lie."""
    rng = random.Random(seed)
    records = list(stream(EVERYTHING, rng, 2 * COUNT))
    settings = RunSettings(run_id="run")
    page(Report.of(records, Path(tmp_path), settings, {}), {}, [])
    progress = Progress(settings, lambda: 1000.0)
    for record in records:
        progress.feed(record, rng.choice((0, 10**12, 2**62)))
        facts.facts(record, full=rng.random() < 0.5)
    assert progress.line()
    assert verdicts.as_json(verdicts.account(records))
    for member in range(3):
        trial = conversation.gather(records, f"run/00000001/{member}")
        if trial is not None:
            list(conversation_text.render(trial, Texts(None), full=True))
    report = audit(records, over=True)
    assert report.balanced or report.problems
    assert report.lines()


@pytest.mark.parametrize("seed", SEEDS)
def test_one_lie_in_an_honest_run_is_named_or_harms_nothing(seed):
    """Every claim of one verdict or completion at an extreme: the reward comes from the plan, or there is none."""
    rng = random.Random(seed)
    for _ in range(40):
        asked = [made.request(0, m, 2) for m in range(2)]
        said: list[Record] = [made.completed(0, m) for m in range(2)]
        said += [made.verdict(0, 0), made.verdict(0, 1, "fail")]
        at = rng.randrange(4)
        lie = hostile(said[at], rng)
        if lie is None:
            continue
        said[at] = lie
        core = ClosureCore("run", Rule(), 10_000)
        core.assigned(frozenset({0}))
        fed = Fed(core)
        fed.live()
        fed.give([*asked, *fed_verdicts(said)])
        fed.pass_time(30)
        (group,) = fed.of(GroupClosed)
        report = audit([*asked, *said, group, made.admission(group)])
        assert report.balanced or report.problems
        if group.contrast != "unresolved":
            assert group.member_rewards == tuple(one.reward for one in fed_verdicts(said)), "each earned its own"
            assert all(one.task_id == "task-0" for one in fed_verdicts(said))


def fed_verdicts(said: list[Record]) -> list[VerificationVerdict]:
    return [one for one in said if isinstance(one, VerificationVerdict)]
