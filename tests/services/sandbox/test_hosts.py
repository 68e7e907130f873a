"""A workspace whose fixture declares hosts reaches them from its runs; its jail serves nobody else but its equals."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from schemas.sandbox import SandboxResult
from services.runtime.jail.launcher import JailHost
from services.runtime.jail.limits import MIB, Limits
from services.runtime.jail.session import Program
from services.runtime.settings import Sandbox
from services.sandbox import metrics
from services.sandbox.core import SandboxCore
from services.sandbox.pool import Pool
from services.sandbox.workspace import Known, Operator
from services.tasks.fixture import Fixture
from tests.services.jails import ADD_FIX, Deliver, add_fixture, command

LIMITS = Limits(memory_bytes=192 * MIB, cpu_s=30)
ASKS = """
import urllib.request
def add(a, b):
    with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/{a}/{b}", timeout=20) as answer:
        return int(answer.read())
"""


class Sums(http.server.BaseHTTPRequestHandler):
    """Adds the two numbers of a path."""

    def do_GET(self) -> None:
        body = str(sum(map(int, self.path.strip("/").split("/")))).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Sums) as site:
        threading.Thread(target=site.serve_forever, daemon=True).start()
        yield site.server_address[1]
        site.shutdown()


@pytest.fixture
def pool(host: JailHost) -> Iterator[Pool]:
    pool = Pool(host, LIMITS, 2)
    yield pool
    pool.close()


def asking(port: int, *hosts: str) -> Fixture:
    source = ASKS.replace("{PORT}", str(port))
    return add_fixture(base_tree={"solution.py": source}, deterministic=False, hosts=hosts)


def observed(pool: Pool, *fixtures: Fixture) -> list[str]:
    """What the checks show in one workspace of each."""
    found = []
    for number, fixture in enumerate(fixtures):
        core = SandboxCore(
            Sandbox(cpu_s=10, wall_s=30), lambda taskset, task, one=fixture: one, Operator(pool, Known()), "gen",
            lambda: 2_000,
        )  # fmt: skip
        deliver = Deliver(core, "sandbox.command.v1")
        name = f"run/00000000/{number}"
        for sequence, tool in enumerate(("test", "submit")):
            named = {"trial_id": name, "operation_id": f"o{number}.{sequence}"}
            deliver.give(command(fixture, tool, sequence, **named, cpu_s=10.0, wall_s=30.0))
        results = [one for one in deliver.outputs if isinstance(one, SandboxResult)]
        assert [one.status for one in results] == ["ok", "ok"], results
        found.append(results[0].observation)
    return found


def test_a_fixtures_hosts_are_reached_from_its_workspace_alone(pool: Pool, port: int) -> None:
    declared, other, none = asking(port, f"127.0.0.1:{port}"), asking(port, "127.0.0.1:1"), asking(port)
    seen = observed(pool, declared, other, none, declared)
    assert (seen[0], seen[3]) == ("ok", "ok")
    assert "HTTPError" in seen[1] or "OSError" in seen[1]
    assert "ok" not in (seen[1], seen[2])
    assert "OSError" in seen[2]  # no socket can be made
    assert pool.network["passed"] >= 4
    assert pool.network["refused"] >= 1
    registry = CollectorRegistry()
    metrics.register(pool, registry)
    text = generate_latest(registry).decode()
    assert f'rlvr_sandbox_network{{what="passed"}} {float(pool.network["passed"])}' in text
    assert f'rlvr_sandbox_network{{what="refused"}} {float(pool.network["refused"])}' in text


def test_jails_are_handed_on_only_for_the_same_hosts(host: JailHost, pool: Pool, port: int) -> None:
    if not host.private_mounts:
        pytest.skip("jails are handed on only where a reset can be proved")
    mine, others = (f"127.0.0.1:{port}",), ("127.0.0.1:1",)
    used = pool.take({}, "", mine)
    source = ASKS.replace("{PORT}", str(port)) + "import socket\nLEFT = socket.socket(socket.AF_UNIX)\n"
    source += "LEFT.bind('/tmp/left'); LEFT.listen(1); open('/tmp/x', 'w').write('x')\n"
    used.runs += 1
    transcript = used.server.run(Program({"m.py": source}, "m", "add"), [(1, 2)], 10.0, 30.0)
    assert [answer.text for answer in transcript.answers] == ['{"i":"3"}']
    pool.give(used)
    assert (pool.ready, pool.counts["reset"]) == (1, 1), used.problem
    taken = [pool.take({}, "", hosts) for hosts in ((), others)]
    assert used not in taken
    assert [warm.hosts for warm in taken] == [(), others]
    again = pool.take({}, "", mine)
    assert again is used
    for warm in (*taken, again):
        pool.give(warm)
    assert host.free == 8 - pool.ready
    while pool.fill():
        pass
    assert pool.take({}, "").hosts == ()


def test_a_pool_keeps_only_plain_jails_ready(pool: Pool) -> None:
    while pool.fill():
        pass
    assert [pool.take({}, "").hosts for _ in range(2)] == [(), ()]


def test_a_fixture_without_hosts_is_none_the_wiser(pool: Pool) -> None:
    source = "import os\nassert not [n for n in os.environ if 'proxy' in n.lower()] and not os.path.exists('/proxy')\n"
    assert observed(pool, add_fixture(base_tree={"solution.py": source + ADD_FIX}, deterministic=False)) == ["ok"]
