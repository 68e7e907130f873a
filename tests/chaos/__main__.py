"""`python -m tests.chaos`: the long form. Prints the seed first; the same seed gives the same schedule again."""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from infra.local.prepare import prepare
from infra.local.rundir import RunDir
from tests.chaos.faults import BROKER, STORE, Fault, schedule
from tests.chaos.reckoning import Reckoning, reckon
from tests.chaos.toxiproxy import toxiproxy
from tests.chaos.world import CLOSURE_DEADLINE_S, SESSION_S, World, kafka_behind, make_stack, settings, store_behind

SHARED = Path(__file__).resolve().parents[3] / "shared"


@dataclass
class Outcome:
    """What one round of chaos did, and what the topics say afterwards."""

    seed: int
    seconds: float
    world: World
    reckoning: Reckoning

    def lines(self) -> list[str]:
        found, world = self.reckoning, self.world
        restarts = sum(world.stack.restarts().values())
        return [
            *found.audit,
            f"seed {self.seed}: {found.trials} trials in {self.seconds:.0f} s "
            f"({found.trials / self.seconds:.1f}/s), {found.updates} updates",
            f"faults {sum(world.injected.values())}: {dict(sorted(world.injected.items()))}",
            f"over: {dict(sorted(world.targets.items()))}",
            f"recoveries (processes started again): {restarts}",
            f"duplicates suppressed {sum(found.duplicates.values())}: {dict(found.duplicates)}",
            f"losses {found.losses}",
            *(f"PROBLEM {problem}" for problem in found.problems[:40]),
            "all held" if not found.problems else f"FAILED with --seed {self.seed}",
        ]


def _storm(world: World, faults: list[Fault], say: Callable[[str], None]) -> None:
    """Drive the supervisor while the schedule is worked off."""
    began = time.monotonic()
    waiting, active = list(faults), list[tuple[float, Fault]]()
    while waiting or active:
        now = time.monotonic() - began
        for due, fault in [entry for entry in active if entry[0] <= now]:
            world.heal(fault)
            active.remove((due, fault))
        busy = {(fault.target, fault.kind in ("kill", "term", "pause", "long_pause")) for _, fault in active}
        while waiting and waiting[0].at_s <= now:
            fault = waiting[0]
            if (fault.target, fault.kind in ("kill", "term", "pause", "long_pause")) in busy:
                break  # one fault of a kind on one target at a time
            waiting.pop(0)
            if world.strike(fault):
                say(str(fault))
                active.append((now + fault.for_s, fault))
                break
        world.stack.supervisor.check()
        time.sleep(0.05)


def _settle(world: World, until: Callable[[], bool], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while not until() and time.monotonic() < deadline:
        world.stack.supervisor.check()
        time.sleep(0.1)


def chaos(
    equipment: Path, folder: Path, *, seed: int, seconds: float, count: int, kafka: bool = False, s3: bool = False,
    instances: int = 2, say: Callable[[str], None] = lambda line: None,
) -> Outcome:  # fmt: skip
    """Run a stack under `count` faults over `seconds`, let it finish what is under way, drain it, and reckon."""
    with contextlib.ExitStack() as cleanup:
        proxy = cleanup.enter_context(toxiproxy(equipment, folder / "toxiproxy"))
        run = settings(folder / "run", 1_000_000, instances)
        server = nodes = None
        if s3:
            server, run = store_behind(equipment, folder / "s3", proxy, run)
            cleanup.callback(server.stop)
        run = prepare(run, RunDir(Path(run.run_dir)), lambda record: None)
        bootstrap, kafka_links = "", []
        if kafka:
            nodes, kafka_links, bootstrap = cleanup.enter_context(kafka_behind(equipment, folder / "kafka", proxy))
        stack, links = make_stack(run, proxy, bootstrap)
        if kafka:
            links[BROKER] = kafka_links
        if s3:
            links[STORE] = [STORE]
        world = World(stack, proxy, links, server, nodes)
        cleanup.callback(stack.close)
        cleanup.callback(world.wake_all)
        stack.start(timeout_s=180)
        say(f"seed {seed}: {len(stack.services)} processes, broker at {stack.bootstrap}")
        began = time.monotonic()
        _storm(world, schedule(seed, seconds, count, world.processes, sorted(links), SESSION_S), say)
        world.wake_all()
        drained(world, say)
        taken = time.monotonic() - began
        found = reckon(stack.cluster, deadline_s=CLOSURE_DEADLINE_S + 60)
        return Outcome(seed, taken, world, found)


def drained(world: World, say: Callable[[str], None]) -> None:
    """End dispatch, wait until every group asked for is decided, then end the services."""
    from infra.local.watch import read_everything
    from services.runtime.ledger import audit

    stack = world.stack
    say("settling")
    _settle(world, lambda: all(p.ready() is not None for p in stack.supervisor.processes.values()), 60)
    stack.supervisor.stop([["dispatch"]])

    def decided() -> bool:
        for _ in range(20):
            stack.supervisor.check()
            time.sleep(0.05)
        report = audit(read_everything(stack.cluster))
        return all(where.startswith("admitted") for where in report.in_flight)

    _settle(world, decided, CLOSURE_DEADLINE_S + 60)
    stack.stop_services()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--faults", type=int, default=0, help="how many; default: one every seven seconds")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument(
        "--kafka", action="store_true", help="three nodes of Apache Kafka instead of the embedded broker"
    )
    parser.add_argument("--local-store", action="store_true", help="a folder instead of the S3 server")
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
            say=lambda line: print(line, flush=True),
        )  # fmt: skip
    print("\n".join(outcome.lines()))
    return 1 if outcome.reckoning.problems else 0


if __name__ == "__main__":
    sys.exit(main())
