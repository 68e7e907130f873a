"""How many verdicts closure and admission take in, on one core: their cores alone, and through loop and broker.

Run with `python -m tests.bench.closure_bench`; `--json` prints one JSON object. Through the loop, both services run in
one process pinned to one core (so both share one interpreter lock); broker and sender are processes of their own.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from infra.broker.testing import running_broker
from schemas import codec, topics
from schemas.policy import PolicyPublished
from schemas.record import Record
from schemas.rollout import RolloutRequested
from schemas.topics import Topic
from schemas.verification import VerificationVerdict
from services.admission import main as admission
from services.admission.core import AdmissionCore
from services.closure import main as closure
from services.closure.cohort import Rule
from services.closure.core import ClosureCore
from services.runtime.context import MakeCore, ServiceContext, ServiceSpec
from services.runtime.core import Core, Effects, Message, Position
from services.runtime.logs import Log
from services.runtime.loop import Service
from services.runtime.producer import make_producer
from services.runtime.settings import RunSettings, load
from services.runtime.topics_admin import ensure_topics

RUN = "bench"
SIZE = 8


def plan(group: int, member: int) -> RolloutRequested:
    gid = f"{RUN}/{group:08d}"
    return RolloutRequested(
        run_id=RUN, group_id=gid, trial_id=f"{gid}/{member}", member=member, group_size=SIZE, task_id="t",
        family="sorting", fixture_digest="sha256:f", taskset_digest="sha256:t", split="train", task_set="train",
        policy_version=0, temperature=1.0, top_k=0, top_p=1.0, max_turns=3, max_tokens=144, wall_s=60.0, seed=member,
        selection="uniform", selection_weight=0.1, selection_inputs='{"admission_offsets":{}}', requested_ms=1,
    )  # fmt: skip


def judge(group: int, member: int) -> VerificationVerdict:
    gid = f"{RUN}/{group:08d}"
    passed = (group + member) % 3 == 0
    return VerificationVerdict(
        run_id=RUN, group_id=gid, trial_id=f"{gid}/{member}", attempt=0, task_id="t", split="train", policy_version=0,
        newest_version=0, verdict="pass" if passed else "fail", cause="ok", reward=float(passed),
        correctness=float(passed), format_score=None, length_score=None, evidence="E3", trials_run=3, trials_wanted=3,
        reused=False, verifier_digest="sha256:v", check_digest="sha256:c", fixture_digest="sha256:f",
        candidate_digest="sha256:d", invocations=3, policy_tokens=60, requested_ms=1, started_ms=2, ended_ms=900,
        generation_ms=500, tool_wait_ms=200, verification_started_ms=910, verification_ended_ms=960,
    )  # fmt: skip


def stream(groups: int, under_way: int = 48) -> list[tuple[Topic, Record]]:
    """Requests and verdicts as a run makes them: verdicts of `under_way` groups come mixed, member by member."""
    out: list[tuple[Topic, Record]] = []
    for first in range(0, groups, under_way):
        numbers = range(first, min(groups, first + under_way))
        out += [(topics.ROLLOUT_REQUESTED, plan(group, member)) for group in numbers for member in range(SIZE)]
        out += [(topics.VERIFICATION_VERDICT, judge(group, member)) for member in range(SIZE) for group in numbers]
    return out


def cores_alone(groups: int = 4000) -> float:
    """Verdicts per second of both cores, without codec and broker; closures and decisions are read back as in a run."""
    closing = ClosureCore(RUN, Rule(), 900_000)
    admitting = AdmissionCore(RUN, 2)
    for core in (closing, admitting):
        core.assigned(frozenset({0}))
        core.caught_up(0)
    offsets: dict[str, int] = {}

    def message(topic: Topic, record: Record) -> Message:
        offset = offsets[topic.name] = offsets.get(topic.name, -1) + 1
        return Message(Position(topic.name, 0, offset), 0, f"{RUN}/0", {}, record, 100)

    admitting.handle(message(topics.POLICY_PUBLISHED, PolicyPublished(RUN, 0, "u", "d", None, None, 0)), 0)
    messages = [message(topic, record) for topic, record in stream(groups)]
    start = time.process_time()
    for number, given in enumerate(messages):
        for output in closing.handle(given, number).outputs:
            closed = message(output.topic, output.record)
            closing.handle(closed, number)
            for decision in admitting.handle(closed, number).outputs:
                admitting.handle(message(decision.topic, decision.record), number)
        if number % 5000 == 0:
            closing.tick(number)
            admitting.tick(number)
    assert admitting.counts["admitted"] == groups
    return groups * SIZE / (time.process_time() - start)


def _settings(bootstrap: str) -> RunSettings:
    return load(run_id=RUN, kafka={"bootstrap": bootstrap})


def send(bootstrap: str, groups: int) -> None:
    """The sender's process: encodes everything first, says so, then sends as fast as the broker takes it."""
    producer = make_producer(_settings(bootstrap), "sender")
    encoded = [
        (topic.name, record.group_id.encode(), codec.encode(record), codec.headers(record))  # type: ignore[attr-defined]  # both records have a group
        for topic, record in stream(groups)
    ]
    producer.partitions_for(topics.ROLLOUT_REQUESTED.name)
    producer.partitions_for(topics.VERIFICATION_VERDICT.name)
    print("encoded", flush=True)
    sys.stdin.readline()
    for name, key, value, headers in encoded:
        producer.send(name, key=key, value=value, headers=headers)
    producer.flush(120)
    producer.close(5)


class Running:
    """A service in a thread of this process, with its core at hand."""

    def __init__(self, spec: ServiceSpec, make_core: MakeCore, settings: RunSettings) -> None:
        self.core: Any = None
        self.caught = threading.Event()

        def make(context: ServiceContext) -> Core:
            self.core = make_core(context)
            plain = self.core.caught_up

            def caught_up(now_ms: int) -> Effects:
                self.caught.set()
                effects: Effects = plain(now_ms)
                return effects

            self.core.caught_up = caught_up
            return self.core  # type: ignore[no-any-return]  # the core as made

        self.service = Service(spec, make, settings, log=Log(spec.name, RUN, io.StringIO()))
        self.thread = threading.Thread(target=self.service.run, name=spec.name)
        self.thread.start()

    def stop(self) -> None:
        self.service.stop()
        self.thread.join(30)


def through_the_loop(bootstrap: str, groups: int = 2000) -> dict[str, float]:
    """Verdicts per second from the first record sent to the last decision, and per second of CPU of this process."""
    settings = _settings(bootstrap)
    ensure_topics(settings)
    producer = make_producer(settings, "publisher")
    version = PolicyPublished(RUN, 0, "runs/bench/checkpoints/00000000.json", "sha256:m", None, None, 0)
    value, headers = codec.encode(version), codec.headers(version)
    producer.send(topics.POLICY_PUBLISHED.name, key=RUN.encode(), value=value, headers=headers).get(30)
    producer.close(5)
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    services = [Running(spec.SPEC, spec.make_core, settings) for spec in (closure, admission)]  # type: ignore[attr-defined]  # two modules of one shape
    command = [sys.executable, "-m", __spec__.name, "--send", bootstrap, str(groups)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as sender:
        os.sched_setaffinity(sender.pid, range(os.cpu_count() or 1))
        try:
            assert sender.stdout is not None
            assert sender.stdin is not None
            sender.stdout.readline()
            for running in services:
                if not running.caught.wait(30):
                    raise TimeoutError("a service did not catch up")
            start, cpu = time.perf_counter(), time.process_time()
            sender.stdin.write("go\n")
            sender.stdin.flush()
            while sum(services[1].core.counts.values()) < groups:
                if time.perf_counter() - start > 120:
                    raise TimeoutError(f"{services[1].core.counts} of {groups} groups after 120 s")
                time.sleep(0.01)
            wall, spent = time.perf_counter() - start, time.process_time() - cpu
        finally:
            sender.kill()
            for running in services:
                running.stop()
    return {"loop_verdicts_per_s": groups * SIZE / wall, "loop_verdicts_per_cpu_s": groups * SIZE / spent}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--send", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.send:
        send(args.send[0], int(args.send[1]))
        return
    figures = {"cores_verdicts_per_s": cores_alone()}
    with tempfile.TemporaryDirectory() as folder, running_broker(Path(folder) / "broker") as broker:
        figures |= through_the_loop(broker.bootstrap)
    if args.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:28} {value:10.0f}")


if __name__ == "__main__":
    main()
