"""Tap on a real broker: every record one readable line, bad bytes never end it, mistakes say what to do."""

from __future__ import annotations

import io
import json
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from schemas import codec
from schemas.record import Record
from schemas.rollout import Invocation
from services.monitor.tap import tap
from services.runtime.errors import UserError
from tests.services.monitor.conftest import write
from tests.services.monitor.synthetic import TOPIC_OF, Run

ROOT = Path(__file__).parents[3]


def lines(bootstrap: str, *args: object, **options: object) -> list[str]:
    out = io.StringIO()
    tap(bootstrap, *args, follow=False, out=out, **options)
    return out.getvalue().splitlines()


def test_every_record_of_every_topic_is_one_line(stack: str, run_records: list[Record]) -> None:
    """Nothing is lost or doubled on the way to the screen, and times never run backwards across topics."""
    run_id = run_records[0].run_id
    shown = [json.loads(text) for text in lines(stack, "all", as_json=True, where=[f"run_id={run_id}"])]
    assert Counter(s["topic"] for s in shown) == Counter(TOPIC_OF[r.TYPE.name].name for r in run_records)
    times = [s["timestamp_ms"] for s in shown]
    assert times == sorted(times), "history of several partitions is merged by time"


def test_a_line_shows_the_facts_and_shortens_token_lists(stack: str, run_records: list[Record]) -> None:
    """A person reads id, version, lengths and log-probabilities at a glance; `full` shows every id."""
    invocation = next(r for r in run_records if isinstance(r, Invocation))
    where = [f"invocation_id={invocation.invocation_id}"]
    (short,) = lines(stack, "rollout.invocation", where=where)
    assert invocation.invocation_id in short
    assert "40→+14 tok" in short
    assert "in [0, 1, … +38]" in short
    assert "stop_token" in short
    (whole,) = lines(stack, "rollout.invocation.v1", where=where, full=True)
    assert ", ".join(str(i) for i in invocation.sampled_ids) in whole


def test_json_is_one_object_a_line_and_full_keeps_every_item(stack: str, run_records: list[Record]) -> None:
    """`jq` can rely on it: a cut list says how long it was, and `full` gives it whole."""
    invocation = next(r for r in run_records if isinstance(r, Invocation))
    where = [f"invocation_id={invocation.invocation_id}"]
    (short,) = [json.loads(x) for x in lines(stack, "rollout.invocation", where=where, as_json=True)]
    assert short["record"]["appended_ids"] == {"length": 40, "head": [0, 1]}
    assert short["headers"]["rlvr-trial-id"] == invocation.trial_id
    (whole,) = [json.loads(x) for x in lines(stack, "rollout.invocation", where=where, as_json=True, full=True)]
    assert whole["record"]["appended_ids"] == invocation.appended_ids.tolist()
    assert whole["record"]["logprobs"] == pytest.approx(invocation.logprobs.tolist())


def test_conditions_limit_and_start(stack: str, run_records: list[Record]) -> None:
    """Filters compare by type, a limit ends the reading, and the last N of a partition are found."""
    run_id = run_records[0].run_id
    mine = f"run_id={run_id}"
    passed = sum(getattr(r, "verdict", None) == "pass" for r in run_records)
    assert len(lines(stack, "verification.verdict", where=[mine, "verdict=pass"])) == passed
    assert len(lines(stack, "verification.verdict", where=[mine, "reward>=0.5"])) == passed
    assert len(lines(stack, "training.update", where=[mine, "policy_version<=3", "policy_version!=2"])) == 2
    group = next(r for r in run_records if r.TYPE.name == "training.update").group_ids[0]
    assert len(lines(stack, "training.update", where=[f"group_ids={group}"])) == 1
    assert len(lines(stack, "rollout.requested", limit=3)) == 3
    assert len(lines(stack, "training.update", from_="-2")) == 2
    assert len(lines(stack, "training.update", from_="latest")) == 0


def test_bad_bytes_print_a_reason_and_reading_goes_on(stack: str) -> None:
    """A record that breaks the contract is shown as such between its neighbours; a dead letter shows its headers."""
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=stack)
    producer.send("policy.gate.v1", b"not arrow", b"bad", [("content-type", codec.CONTENT_TYPE.encode())]).get(10)
    letter = [("dlq.reason", b"undecodable"), ("dlq.error", b"ArrowInvalid: not arrow"), ("dlq.service", b"sampler")]
    place = [("dlq.source.topic", b"rollout.requested.v1"), ("dlq.source.partition", b"1"), ("dlq.source.offset", b"7")]
    producer.send("rollout.requested.v1.dlq", b"not arrow", b"bad", letter + place).get(10)
    producer.close(timeout=5)
    write(stack, [r for r in Run(run_id="after").build() if r.TYPE.name == "policy.gate"][:1])
    shown = lines(stack, "policy.gate")
    assert sum("NOT A RECORD  undecodable" in text for text in shown) == 1
    assert any("  after  " in text for text in shown), "records behind the bad one are read"
    (letter_line,) = lines(stack, "rollout.requested.dlq")
    assert "reason=undecodable" in letter_line
    assert "from=rollout.requested.v1/1/7" in letter_line
    (as_json,) = [json.loads(x) for x in lines(stack, "rollout.requested.v1.dlq", as_json=True)]
    assert as_json["problem"].startswith("content-type")


def test_following_prints_what_arrives_and_stops_when_told(stack: str) -> None:
    """The live mode shows a record within a second of its arrival and ends by the event."""
    out, stop = io.StringIO(), threading.Event()
    options = {"where": ["run_id=live"], "out": out, "stop": stop}
    thread = threading.Thread(target=tap, args=(stack, "policy.gate"), kwargs=options, daemon=True)
    thread.start()
    records = [r for r in Run(run_id="live").build() if r.TYPE.name == "policy.gate"]
    deadline = time.monotonic() + 15
    while "live" not in out.getvalue() and time.monotonic() < deadline:  # the reader seeks to the end first
        write(stack, records[:1])
        time.sleep(0.3)
    stop.set()
    thread.join(10)
    assert "live" in out.getvalue()
    assert not thread.is_alive()


def test_a_mistake_is_answered_with_what_to_do(stack: str) -> None:
    """Unknown topic, field, condition, starting place: one message each, with near names or the grammar."""
    with pytest.raises(UserError) as e:
        tap(stack, "rollout.request", follow=False)
    assert "rollout.requested.v1" in str(e.value)
    with pytest.raises(UserError) as e:
        tap(stack, "verification.verdict", follow=False, where=["verdikt=pass"])
    assert "verdict" in str(e.value)
    with pytest.raises(UserError, match="no condition"):
        tap(stack, "all", where=["verdict"])
    with pytest.raises(UserError) as e:
        tap(stack, "all", from_="yesterday")
    assert "5m, 2h" in str(e.value)


def test_an_unreachable_broker_is_said_within_seconds() -> None:
    """Nobody waits for a broker that is not there, nor for something that does not speak Kafka."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    started = time.monotonic()
    with pytest.raises(UserError) as e:
        tap(f"127.0.0.1:{port}", "all")
    assert "no broker can be reached" in str(e.value)
    assert "rollstream" in str(e.value), "it says what to do"
    with pytest.raises(UserError, match="is no broker address"):
        tap("localhost", "all")
    assert time.monotonic() - started < 5
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        started = time.monotonic()
        with pytest.raises(UserError, match="does not answer as Kafka"):
            tap(f"127.0.0.1:{mute.getsockname()[1]}", "all")
        assert time.monotonic() - started < 10


def test_a_closed_pipe_ends_it_quietly(stack: str) -> None:
    """`rollstream tap all | head -1` prints a line and no traceback."""
    command = [sys.executable, "-m", "services.cli", "tap", "all", "--from", "earliest", "--bootstrap", stack]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT)
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline()
    process.stdout.close()
    assert process.wait(30) == 141
    assert process.stderr.read() == b""
    process.stderr.close()


def test_importing_it_loads_nothing_heavy() -> None:
    """`rollstream tap --help` must start in under half a second: no Kafka, Arrow or NumPy until it runs."""
    code = (
        "import sys, services.monitor.tap, services.monitor.trial, services.monitor.report, services.monitor.progress\n"
        "print([m for m in ('kafka', 'pyarrow', 'numpy', 'matplotlib', 'rich', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr
