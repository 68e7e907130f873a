"""Addresses of IPv6 reach everything that an address of IPv4 reaches; what is no address is said, never waited for."""

import socket
import threading
import urllib.request

import pytest

from infra.broker.testing import running_broker
from services.monitor.source import require_reachable
from services.runtime.address import host_and_port, joined
from services.runtime.errors import UserError
from services.runtime.health import HealthServer
from services.runtime.lifecycle import reachable
from services.runtime.store import open_store
from tests import s3
from tests.services.runtime.bus import Bus, wait_for


def _has_loopback() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as s:
            s.bind(("::1", 0))
    except OSError:
        return False
    return True


ipv6 = pytest.mark.skipif(not _has_loopback(), reason="this machine has no IPv6 loopback address")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("127.0.0.1:9092", ("127.0.0.1", 9092)),
        (" kafka-0.kafka:1 ", ("kafka-0.kafka", 1)),
        ("[::1]:9092", ("::1", 9092)),
        ("[fe80::1%eth0]:65535", ("fe80::1%eth0", 65535)),
        ("[::ffff:10.0.0.1]:9", ("::ffff:10.0.0.1", 9)),
    ],
)
def test_an_address_is_read_and_written(text, found):
    assert host_and_port(text, "kafka.bootstrap") == found
    assert joined(*found) == text.strip()


@pytest.mark.parametrize(
    "text",
    ["::1:9092", "::1", "[::1]", "kafka", "kafka:", ":9092", "kafka:0", "kafka:65536", "[kafka]:1", "a b:1", "a:1x"],
)
def test_what_is_no_address_is_refused_by_everybody_who_would_wait_for_it(text):
    for ask in (reachable, require_reachable):
        with pytest.raises(UserError, match="is no broker address"):
            ask(text)


@ipv6
def test_a_service_works_against_a_broker_on_ipv6(tmp_path):
    with running_broker(tmp_path / "broker", host="::1") as broker:
        assert broker.bootstrap.startswith("[::1]:")
        assert reachable(broker.bootstrap)
        require_reachable(broker.bootstrap)
        bus = Bus(broker.bootstrap)
        try:
            service = bus.start()
            bus.send(range(5))
            wait_for(lambda: bus.answered() == list(range(5)), 30, what="five answers")
            service.finish()
        finally:
            bus.close()


@ipv6
@pytest.mark.parametrize("host", ["::1", "[::1]", "::", "localhost", "127.0.0.1"])
def test_health_is_answered_where_it_was_told_to(host):
    server = HealthServer(lambda: True, lambda: True, lambda: b"", 0, host)
    server.start()
    try:
        at = "[::1]" if ":" in host else host
        with urllib.request.urlopen(f"http://{at}:{server.port}/healthz/live", timeout=5) as answer:
            assert answer.status == 200
    finally:
        server.close()


def test_a_host_that_is_none_is_said():
    with pytest.raises(UserError, match="health"):
        HealthServer(lambda: True, lambda: True, lambda: b"", 0, "no-such-host.invalid")


@ipv6
def test_a_store_is_reached_by_ipv6(shared_equipment, tmp_path):
    """The test server listens on IPv4; what stands before it is passed on byte by byte."""
    with (
        s3.s3_server(shared_equipment, tmp_path) as server,
        socket.create_server(("::1", 0), family=socket.AF_INET6) as door,
    ):
        threading.Thread(target=_pass_on, args=(door, host_and_port(server.endpoint, "")), daemon=True).start()
        endpoint = joined("::1", door.getsockname()[1])
        store = open_store(server.settings(url=f"s3://{server.bucket()}/a", endpoint=endpoint))
        store.put("x/y", b"1")
        assert (store.get("x/y"), list(store.list())) == (b"1", ["x/y"])


def _pass_on(door: socket.socket, behind: tuple[str, int]) -> None:
    def pump(source: socket.socket, target: socket.socket) -> None:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)

    while True:
        try:
            here, _ = door.accept()
        except OSError:
            return
        there = socket.create_connection(behind)
        for pair in ((here, there), (there, here)):
            threading.Thread(target=pump, args=pair, daemon=True).start()
