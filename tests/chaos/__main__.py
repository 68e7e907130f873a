"""`python -m tests.chaos`: the long form. Prints the seed first; the same seed gives the same schedule again."""

from __future__ import annotations

import argparse
import contextlib
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from infra.local.prepare import prepare
from infra.local.rundir import RunDir
from infra.local.supervisor import StackFailed
from infra.local.watch import read_everything
from services.runtime.ledger import audit
from tests.chaos.clocks import Clocks
from tests.chaos.faults import BROKER, STORE, Fault, schedule
from tests.chaos.hand import Hand
from tests.chaos.observer import Observer
from tests.chaos.reckoning import ADMITTED, Reckoning, Story, reckon, taken_over
from tests.chaos.recorded import missing
from tests.chaos.storm import Storm
from tests.chaos.toxiproxy import toxiproxy
from tests.chaos.world import (
    CLOSURE_DEADLINE_S,
    PASS_RATE,
    Shape,
    kafka_behind,
    make_stack,
    settings,
    store_behind,
)

SHARED = Path(__file__).resolve().parents[3] / "shared"
SHAPE = Shape()
SMALL = Shape(instances=1, group_size=4, batch_groups=4, session_s=3.0)
QUIET_S = 10.0
"""Nothing is broken at the start for so long: how fast the stack is by itself is printed with the rest."""


@dataclass
class Outcome:
    """What one round of chaos did, and what the topics say afterwards. `replay`: the command that repeats it."""

    replay: str
    storm: Storm
    reckoning: Reckoning
    seconds: float
    storm_s: float
    storm_trials: int
    planned: list[Fault]
    restarts: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def faults(self) -> int:
        return sum(self.storm.hand.injected.values())

    def lines(self) -> list[str]:
        found, hand = self.reckoning, self.storm.hand
        again = [f"{kind} {_spread(times)}" for kind, times in sorted(self.storm.recoveries.items())]
        return [
            *found.audit,
            *self.notes,
            f"trials {found.trials} in {self.seconds:.0f} s, {found.updates} updates; "
            f"while faults fell: {self.storm_trials} in {self.storm_s:.0f} s, {self.storm_trials / self.storm_s:.1f}/s",
            f"faults {self.faults}: {dict(sorted(hand.injected.items()))}",
            f"over: {dict(sorted(hand.hits.items()))}",
            f"recoveries {sum(map(len, self.storm.recoveries.values()))} (count, median s, longest s), "
            f"processes started again {self.restarts}: {'; '.join(again)}",
            f"duplicates suppressed {sum(found.duplicates.values())}: {dict(found.duplicates)}, "
            f"sampled again before the first was acknowledged {found.late}",
            f"verdicts that the engine's own truth confirms {found.judged}",
            f"unresolved by a fault that explains it {found.unresolved}",
            f"losses {found.losses}",
            *(f"PROBLEM {problem}" for problem in found.problems[:40]),
            "all held" if not found.problems else f"FAILED; again: {self.replay}",
        ]


def _spread(times: list[float]) -> str:
    return f"{len(times)}, {statistics.median(times):.1f}, {max(times):.1f}"


def chaos(
    equipment: Path, folder: Path, *, seed: int, seconds: float, count: int, kafka: bool = False, s3: bool = False,
    shape: Shape = SHAPE, say: Callable[[str], None] = lambda line: None,
) -> Outcome:  # fmt: skip
    """Run a stack under `count` faults over `seconds`, let it finish what is under way, drain it, and reckon."""
    options = f"{' --kafka' if kafka else ''}{'' if s3 else ' --local-store'}{' --small' if shape == SMALL else ''}"
    replay = f"python -m tests.chaos --seed {seed} --minutes {seconds / 60:g} --faults {count}{options}"
    with contextlib.ExitStack() as cleanup:
        proxy = cleanup.enter_context(toxiproxy(equipment, folder / "toxiproxy"))
        run = settings(folder / "run", shape)
        server = nodes = None
        if s3:
            server, run = store_behind(equipment, folder / "s3", proxy, run)
            cleanup.callback(server.stop)
        run = prepare(run, RunDir(Path(run.run_dir)), lambda record: None)
        bootstrap, kafka_links = "", []
        if kafka:
            nodes, kafka_links, bootstrap = cleanup.enter_context(kafka_behind(equipment, folder / "kafka", proxy))
        clocks = Clocks(folder / "clocks")
        stack, links = make_stack(run, proxy, bootstrap, clocks)
        if kafka:
            links[BROKER] = kafka_links
        if s3:
            links[STORE] = [STORE]
        hand = Hand(stack, proxy, links, server, nodes, clocks)
        cleanup.callback(stack.close)
        cleanup.callback(hand.wake_all)
        stack.start(timeout_s=180)
        say(f"{replay}: {len(stack.services)} services, broker at {stack.bootstrap}")
        planned = schedule(seed, seconds, count, hand.targets, shape.session_s)
        return _weather(hand, planned, seconds, replay, say)


def _weather(hand: Hand, planned: list[Fault], seconds: float, replay: str, say: Callable[[str], None]) -> Outcome:
    """Quiet, storm, calm, reckoning."""
    stack, notes = hand.stack, []
    observer = Observer(stack.cluster)
    storm = Storm(hand, observer, say)
    observer.start()
    began = time.monotonic()
    struck = ended = (began, 0)
    try:
        storm.settle(lambda: bool(observer.closed), 60)
        quiet_from, quiet_trials = time.monotonic(), len(observer.judged)
        storm.settle(lambda: time.monotonic() - quiet_from > min(QUIET_S, 0.2 * seconds), 60)
        struck = (time.monotonic(), len(observer.judged))
        notes.append(f"before: {(struck[1] - quiet_trials) / (struck[0] - quiet_from):.1f} trials/s")
        storm.run(planned)
        ended = (time.monotonic(), len(observer.judged))
        hand.wake_all()
        _drain(storm, say)
    except StackFailed as e:
        storm.problems.append(f"the stack gave up: {e}")
    finally:
        hand.wake_all()
    seconds_taken = time.monotonic() - began
    stack.stop_services()
    observer.stop()
    if not hand.clocks.there:
        notes.append(hand.clocks.why)
    if "recorder" in stack.services:
        storm.problems += missing(stack.cluster, stack.settings)
    story = Story(
        observer, storm.injured, stack.settings.dispatch.batch_groups, PASS_RATE, storm.problems,
        taken_over(RunDir(Path(stack.settings.run_dir)).logs),
    )  # fmt: skip
    found = reckon(stack.cluster, deadline_s=CLOSURE_DEADLINE_S + 60, story=story)
    return Outcome(
        replay, storm, found, seconds_taken, max(1.0, ended[0] - struck[0]), ended[1] - struck[1], planned,
        sum(stack.restarts().values()), notes,
    )  # fmt: skip


def _drain(storm: Storm, say: Callable[[str], None]) -> None:
    """End dispatch, and wait until every group asked for is decided and every whole batch is trained."""
    stack = storm.hand.stack
    say("settling")
    storm.settle(lambda: all(storm.hand.well(name) for name in stack.services), 90)
    stack.supervisor.stop([["dispatch"]])
    batch = stack.settings.dispatch.batch_groups

    def over() -> bool:
        # The whole account is read only when every group has closed: on a busy machine that takes its time.
        if not storm.settle(lambda: not storm.observer.waiting, 5.0):
            return False
        storm.settle(lambda: False, 1.0)
        report = audit(read_everything(stack.cluster))
        held = [trial for where, trials in report.in_flight.items() if where.startswith(ADMITTED) for trial in trials]
        decided = all(where.startswith(ADMITTED) for where in report.in_flight)
        return decided and len({trial.rpartition("/")[0] for trial in held}) < batch

    deadline = time.monotonic() + CLOSURE_DEADLINE_S + 60
    while not over() and time.monotonic() < deadline:
        pass


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--faults", type=int, default=0, help="how many; default: one every seven seconds")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument(
        "--kafka", action="store_true", help="three nodes of Apache Kafka instead of the embedded broker"
    )
    parser.add_argument("--local-store", action="store_true", help="a folder instead of the S3 server")
    parser.add_argument("--small", action="store_true", help="the size of the tests' short form")
    parser.add_argument("--equipment", type=Path, default=SHARED)
    parser.add_argument("--keep", type=Path, help="keep the run's folder here")
    arguments = parser.parse_args()
    seed = random.SystemRandom().randrange(1_000_000) if arguments.seed is None else arguments.seed
    seconds = 60 * arguments.minutes
    print(f"chaos with --seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="chaos-") as temporary:
        outcome = chaos(
            arguments.equipment, arguments.keep or Path(temporary), seed=seed, seconds=seconds,
            count=arguments.faults or max(1, round(seconds / 7)), kafka=arguments.kafka, s3=not arguments.local_store,
            shape=SMALL if arguments.small else SHAPE, say=lambda line: print(line, flush=True),
        )  # fmt: skip
    print("\n".join(outcome.lines()))
    return 1 if outcome.reckoning.problems else 0


if __name__ == "__main__":
    sys.exit(main())
