"""Protects what operators see: log lines that parse, metrics in base units with bounded labels, health over HTTP."""

import io
import json
import logging
import socket
import struct
import threading
import time
import urllib.error
import urllib.request

import pytest

from services.runtime.errors import UserError
from services.runtime.health import HealthServer
from services.runtime.logs import Log, bridge
from services.runtime.metrics import PHASES, Metrics


def fetch(port, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()


def test_log_lines_are_json_with_service_and_run():
    out = io.StringIO()
    log = Log("closure", "r1", out)
    log.info("group closed", group="r1/00000001", path=pytest)
    log.debug("not at this level")
    (line,) = out.getvalue().splitlines()
    entry = json.loads(line)
    assert (entry["service"], entry["run"], entry["event"]) == ("closure", "r1", "group closed")
    assert entry["group"] == "r1/00000001"
    assert entry["at"].endswith("+00:00")


def test_a_dead_stream_does_not_stop_a_service():
    out = io.StringIO()
    out.close()
    Log("closure", "r1", out).error("nobody hears this")


def test_client_warnings_come_along_but_not_a_thousand_times():
    out, now = io.StringIO(), [0.0]
    undo = bridge(Log("closure", "r1", out))
    logging.getLogger().handlers[-1]._clock = lambda: now[0]
    try:
        for _ in range(5):
            logging.getLogger("kafka.conn").warning("cannot connect to %s", "host")
        now[0] = 11
        logging.getLogger("kafka.conn").warning("cannot connect to %s", "host")
        logging.getLogger("kafka.conn").info("chatter")
    finally:
        undo()
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [entry["message"] for entry in lines] == ["cannot connect to host"] * 2


def test_health_answers_and_metrics_text():
    metrics = Metrics("closure")
    metrics.consumed("group.closed.v1")
    metrics.invalid("undecodable")
    metrics.phase("poll", 1.5)
    state = {"live": True, "ready": False}
    server = HealthServer(lambda: state["live"], lambda: state["ready"], metrics.text)
    server.start()
    try:
        assert fetch(server.port, "/healthz/live")[0] == 200
        assert fetch(server.port, "/healthz/ready")[0] == 503
        state["live"], state["ready"] = False, True
        assert fetch(server.port, "/healthz/live")[0] == 503
        assert fetch(server.port, "/healthz/ready")[0] == 200
        assert fetch(server.port, "/elsewhere")[0] == 404
        status, text = fetch(server.port, "/metrics")
    finally:
        server.close()
    assert status == 200
    assert 'rlvr_records_consumed_total{service="closure",topic="group.closed.v1"} 1.0' in text
    assert 'rlvr_records_invalid_total{reason="undecodable",service="closure"} 1.0' in text
    assert 'rlvr_loop_seconds_total{phase="poll",service="closure"} 1.5' in text, "seconds, not milliseconds"
    assert all(f'phase="{phase}"' in text for phase in PHASES)
    assert "process_resident_memory_bytes" in text


def test_a_probe_that_goes_before_it_is_answered_leaves_no_trace(capfd):
    """kubelet gives up after a second or so, which on a busy node is no event; and the next one is answered."""
    gone = threading.Event()

    def metrics():
        gone.wait(10)
        return b"x" * 8_000_000

    server = HealthServer(lambda: True, lambda: True, metrics)
    server.start()
    try:
        with socket.create_connection(("127.0.0.1", server.port)) as probe:
            probe.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        gone.set()
        assert fetch(server.port, "/healthz/live")[0] == 200
        time.sleep(0.3)
    finally:
        server.close()
    assert capfd.readouterr().err == ""


def test_all_addresses_of_a_pod_are_served():
    server = HealthServer(lambda: True, lambda: False, lambda: b"", host="0.0.0.0")
    server.start()
    try:
        assert fetch(server.port, "/healthz/ready")[0] == 503
    finally:
        server.close()


def test_a_busy_health_port_is_one_clear_message():
    first = HealthServer(lambda: True, lambda: True, lambda: b"")
    first.start()
    try:
        with pytest.raises(UserError, match="health port") as caught:
            HealthServer(lambda: True, lambda: True, lambda: b"", first.port)
        assert str(first.port) in str(caught.value)
    finally:
        first.close()
