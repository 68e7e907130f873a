"""How many verdicts closure and admission take in, on one core: their cores alone, and through loop and broker.

Run with `python -m tests.bench.closure_bench`; `--json` prints one JSON object. Through the loop, both services run as
the stack runs them, pinned to the same core; broker and sender are processes of their own, not pinned.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from kafka import KafkaConsumer, TopicPartition

from infra.broker.testing import running_broker
from schemas import codec, topics
from schemas.policy import PolicyPublished
from schemas.record import Record
from schemas.rollout import RolloutRequested
from schemas.topics import Topic
from schemas.verification import VerificationVerdict
from services.admission.core import AdmissionCore
from services.closure.cohort import Rule
from services.closure.core import ClosureCore
from services.runtime.core import Message, Position
from services.runtime.producer import make_producer
from services.runtime.settings import RunSettings, dump_toml, load
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


def _settings(bootstrap: str, partitions: int = 4) -> RunSettings:
    return load(run_id=RUN, kafka={"bootstrap": bootstrap, "session_timeout_ms": 120_000, "partitions": partitions})


def send(bootstrap: str, groups: int) -> None:
    """The sender's process: writes the whole stream."""
    producer = make_producer(_settings(bootstrap), "sender")
    for topic, record in stream(groups):
        key, value = record.group_id.encode(), codec.encode(record)  # type: ignore[attr-defined]  # both have a group
        producer.send(topic.name, key=key, value=value, headers=codec.headers(record))
    producer.flush(120)
    producer.close(5)


class Process:
    """A service as the stack runs it, pinned to one core; `instance` is its name where there are several."""

    def __init__(self, name: str, folder: Path, core: int, instance: str = "") -> None:
        instance = instance or name
        self._ready = folder / f"{instance}.json"
        command = [sys.executable, "-m", "services.cli", "up", "--service", name, "--config", str(folder / "run.toml")]
        self.child = subprocess.Popen(
            [*command, "--ready-file", str(self._ready)], stderr=(folder / f"{instance}.log").open("wb")
        )
        os.sched_setaffinity(self.child.pid, {core})

    def wait_ready(self, seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not self._answers():
            if self.child.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the service did not become ready: {self._ready.stem}")
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            port = json.loads(self._ready.read_text())["health_port"]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except (OSError, ValueError):
            return False

    @property
    def cpu_s(self) -> float:
        """CPU seconds of all its threads so far."""
        fields = Path(f"/proc/{self.child.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self.child.terminate()
        try:
            self.child.wait(20)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()


def prepare(bootstrap: str, folder: Path, partitions: int = 4) -> None:
    """Topics, the first published version, and the services' configuration."""
    settings = _settings(bootstrap, partitions)
    ensure_topics(settings)
    (folder / "run.toml").write_text(dump_toml(settings))
    producer = make_producer(settings, "publisher")
    version = PolicyPublished(RUN, 0, "runs/bench/checkpoints/00000000.json", "sha256:m", None, None, 0)
    value, headers = codec.encode(version), codec.headers(version)
    producer.send(topics.POLICY_PUBLISHED.name, key=RUN.encode(), value=value, headers=headers).get(30)
    producer.close(5)


def through_the_loop(bootstrap: str, folder: Path, groups: int = 2000) -> dict[str, float]:
    """Verdicts per second of a backlog that both services meet at once, and per second of their CPU together.

    They have caught up and are halted (SIGSTOP) while the backlog is written, so that neither start nor sender counts.
    """
    prepare(bootstrap, folder)
    core = min(os.sched_getaffinity(0))
    services = [Process(name, folder, core) for name in ("closure", "admission")]
    try:
        for service in services:
            service.wait_ready()
        for service in services:
            service.child.send_signal(signal.SIGSTOP)
        subprocess.run([sys.executable, "-m", __spec__.name, "--send", bootstrap, str(groups)], check=True, timeout=120)
        cpu, start = sum(service.cpu_s for service in services), time.perf_counter()
        for service in services:
            service.child.send_signal(signal.SIGCONT)
        wait_for_decisions(bootstrap, groups)
        wall, spent = time.perf_counter() - start, sum(service.cpu_s for service in services) - cpu
    finally:
        for service in services:
            service.child.send_signal(signal.SIGCONT)
            service.stop()
    return {"loop_verdicts_per_s": groups * SIZE / wall, "loop_verdicts_per_cpu_s": groups * SIZE / spent}


def wait_for_decisions(bootstrap: str, groups: int, seconds: float = 120.0) -> None:
    """Until every group is decided, seen from the end of the topic, which costs the services nothing."""
    name = topics.GROUP_ADMISSION.name
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
    try:
        partitions = [TopicPartition(name, number) for number in consumer.partitions_for_topic(name)]
        deadline = time.monotonic() + seconds
        while (decided := sum(consumer.end_offsets(partitions, timeout_ms=5000).values())) < groups:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{decided} of {groups} groups after {seconds:g} s")
            time.sleep(0.05)
    finally:
        consumer.close(timeout_ms=1000)


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
        figures |= through_the_loop(broker.bootstrap, Path(folder))
    if args.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:28} {value:10.0f}")


if __name__ == "__main__":
    main()
