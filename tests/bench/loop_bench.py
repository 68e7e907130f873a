"""What the loop costs: end-to-end record latency, records per second and idle CPU of a trivial service.

Run with `python -m tests.bench.loop_bench`; `--json` prints one JSON object. The broker and the sender are processes of
their own, the service runs in this one, so that `cpu` is the service's alone (consumer, core, producer).
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from infra.broker.testing import running_broker
from schemas import codec, topics
from schemas.sandbox import SandboxCommand, SandboxResult
from services.runtime.context import ServiceSpec
from services.runtime.core import BaseCore, Effects, Message, Output, finished
from services.runtime.logs import Log
from services.runtime.loop import Service
from services.runtime.process import ServiceProcess
from services.runtime.producer import make_producer
from services.runtime.settings import RunSettings, load
from services.runtime.topics_admin import ensure_topics

RUN = "bench"


def command(number: int, issued_us: int) -> SandboxCommand:
    """A small record (about 2 kB of Arrow); `issued_ms` carries microseconds here."""
    group = f"{RUN}/{number % 97:08d}"
    return SandboxCommand(
        run_id=RUN, group_id=group, trial_id=f"{group}/0", attempt=0, operation_id=f"{group}/0.0.{number}", sequence=0,
        task_id="t", fixture_digest="d", taskset_digest="d", tool="run", arguments="{}", cpu_s=0.1, wall_s=1.0,
        output_bytes=1024, issued_ms=issued_us,
    )  # fmt: skip


def result(source: SandboxCommand) -> SandboxResult:
    """One output per input, of the same size."""
    return SandboxResult(
        run_id=RUN, group_id=source.group_id, trial_id=source.trial_id, attempt=0, operation_id=source.operation_id,
        sequence=0, tool="run", status="ok", observation="", truncated=False, checks_passed=True, diff=None, cpu_s=0.0,
        memory_bytes=0, workspace_generation="g", infra_error=None, started_ms=0, ended_ms=0,
    )  # fmt: skip


class Echo(BaseCore):
    """Counts records, notes their age, and answers each when `forward` is on."""

    def __init__(self) -> None:
        self.caught = threading.Event()
        self.ages_ms: list[float] = []
        self.seen = 0
        self.forward = False

    def caught_up(self, now_ms: int) -> Effects:
        self.caught.set()
        return Effects()

    def handle(self, message: Message, now_ms: int) -> Effects:
        command = message.record
        assert isinstance(command, SandboxCommand)
        self.seen += 1
        self.ages_ms.append((time.time_ns() // 1000 - command.issued_ms) / 1000)
        if not self.forward:
            return finished(message)
        return finished(message, [Output(topics.SANDBOX_RESULT, result(command))])

    def wait_for(self, count: int, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self.seen < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.seen} of {count} records after {seconds} s")
            time.sleep(0.005)


def send(bootstrap: str, count: int, pause_s: float) -> None:
    """The sender's process: `count` commands, one every `pause_s` (0: as fast as it can)."""
    producer = make_producer(_settings(bootstrap), "sender")
    producer.partitions_for(topics.SANDBOX_COMMAND.name)
    for number in range(count):
        record = command(number, time.time_ns() // 1000)
        producer.send(
            topics.SANDBOX_COMMAND.name, key=record.group_id.encode(),
            value=codec.encode(record), headers=codec.headers(record),
        )  # fmt: skip
        if pause_s:
            time.sleep(pause_s)
    producer.flush(60)
    producer.close(5)


def _settings(bootstrap: str) -> RunSettings:
    return load(run_id=RUN, kafka={"bootstrap": bootstrap})


def _sender(bootstrap: str, count: int, pause_s: float) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", __spec__.name, "--send", bootstrap, str(count), str(pause_s)])


def quantile(values: list[float], q: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * q))]


def measure(bootstrap: str, *, paced: int = 1000, burst: int = 10_000) -> dict[str, Any]:
    """All figures against a running broker; latencies in milliseconds, rates per second."""
    settings = _settings(bootstrap)
    ensure_topics(settings)
    core = Echo()
    spec = ServiceSpec("sandbox", inputs=(topics.SANDBOX_COMMAND,))
    process = ServiceProcess("sandbox", settings, log=Log("sandbox", RUN, io.StringIO()))
    service = Service(spec, lambda context: core, settings, process)
    thread = threading.Thread(target=service.run)
    thread.start()
    out: dict[str, Any] = {}
    try:
        if not core.caught.wait(30):
            raise TimeoutError("the service did not catch up")
        sender = _sender(bootstrap, paced, 0.005)
        core.wait_for(paced, 60)
        sender.wait(30)
        ages = core.ages_ms[50:]  # the first ones pay for connections
        out |= {"latency_p50_ms": quantile(ages, 0.5), "latency_p99_ms": quantile(ages, 0.99)}
        start = time.process_time()
        time.sleep(4)
        out["idle_cpu_percent"] = (time.process_time() - start) / 4 * 100
        for forward, name in ((False, "consumed"), (True, "transformed")):
            core.forward = forward
            out |= _burst(core, bootstrap, burst, name)
    finally:
        service.stop()
        thread.join(30)
    return out


def _burst(core: Echo, bootstrap: str, burst: int, name: str) -> dict[str, float]:
    """Let a backlog of `burst` records pile up while the core is held, then time its handling."""
    core.seen = 0
    gate = threading.Event()
    plain = core.handle

    def held(message: Message, now_ms: int) -> Effects:
        gate.wait(60)
        return plain(message, now_ms)

    core.handle = held  # type: ignore[method-assign]  # the instance is held until the backlog stands
    if _sender(bootstrap, burst, 0).wait(120):
        raise RuntimeError("the sender failed")
    start, cpu = time.perf_counter(), time.process_time()
    core.handle = plain  # type: ignore[method-assign]  # and let go
    gate.set()
    core.wait_for(burst, 120)
    wall, spent = time.perf_counter() - start, time.process_time() - cpu
    return {f"{name}_per_s": burst / wall, f"{name}_per_cpu_s": burst / spent}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap", help="an existing broker; otherwise the embedded one is started")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--send", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.send:
        send(args.send[0], int(args.send[1]), float(args.send[2]))
        return
    if args.bootstrap:
        figures = measure(args.bootstrap)
    else:
        with tempfile.TemporaryDirectory() as folder, running_broker(Path(folder) / "broker") as broker:
            figures = measure(broker.bootstrap)
    if args.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:24} {value:10.2f}")


if __name__ == "__main__":
    main()
