"""Declared hosts are reached through the proxy, on every backend; nothing else is, and an assessment reaches nobody."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import socket
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from services.runtime.jail.backend import Backend, Options, open_backend
from services.runtime.jail.limits import JailFault
from services.runtime.jail.proxy import Proxy
from services.runtime.jail.session import Server
from services.runtime.settings import Isolation
from tests.contract.sandbox.asking import FETCH, LIMITS, ask, ran, said, serving
from tests.services.docker_engine import ROOT


class Site(http.server.BaseHTTPRequestHandler):
    """Says what it was sent, three times."""

    def do_GET(self) -> None:
        self._say(self.path.encode())

    def do_POST(self) -> None:
        self._say(self.rfile.read(int(self.headers["Content-Length"])) * 3)

    def _say(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """A site on this machine's loopback, which is not the jails'."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Site) as site:
        threading.Thread(target=site.serve_forever, daemon=True).start()
        yield site.server_address[1]
        site.shutdown()


@pytest.fixture(scope="module")
def echo() -> Iterator[int]:
    """Sends back what it gets while it gets it."""

    class Echo(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            while part := self.request.recv(65_536):
                self.request.sendall(part)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield found.server_address[1]
        found.shutdown()


@pytest.fixture(scope="module")
def server(backend: Backend, port: int, echo: int) -> Iterator[Server]:
    """A jail that reaches the two sites; every test is one run in it."""
    with serving(backend, Options(hosts=(f"127.0.0.1:{port}", f"127.0.0.1:{echo}"))) as found:
        yield found


def test_a_declared_host_is_reached_as_libraries_do(server: Server, backend: Backend, port: int) -> None:
    before = backend.proxies.passed, backend.proxies.refused
    assert said(server, FETCH, f"http://127.0.0.1:{port}/a?b=c", "") == "/a?b=c"
    assert said(server, FETCH, f"http://127.0.0.1:{port}/", "x" * 1_000_000) == "3000000 True"
    for url in ("http://127.0.0.1:1/", f"http://localhost:{port}/", f"http://127.0.0.2:{port}/", "http://example.org/",
                "http://169.254.169.254/latest"):  # fmt: skip
        assert said(server, FETCH, url, "").startswith("403 "), url
    assert "403" in said(server, FETCH, "https://example.org/", "")
    assert (backend.proxies.passed - before[0], backend.proxies.refused - before[1]) == (2, 6)


def test_more_connections_than_are_carried_at_once_wait_their_turn(server: Server, port: int) -> None:
    source = """
import os, socket
def f(port):
    host, _, at = os.environ["http_proxy"].removeprefix("http://").partition(":")
    open_ones = [socket.create_connection((host, int(at)), 30) for _ in range(20)]
    for number, one in enumerate(open_ones):
        one.sendall(f"CONNECT 127.0.0.1:{port} HTTP/1.1\\r\\n\\r\\nGET /{number} HTTP/1.0\\r\\n\\r\\n".encode())
    found = []
    for one in open_ones:
        text = b""
        while part := one.recv(4096):
            text += part
        one.close()
        found.append(text.split(b"\\r\\n\\r\\n")[-1].decode())
    return " ".join(found)
"""
    assert said(server, source, port) == " ".join(f"/{number}" for number in range(20))


def test_both_directions_flow_at_once(server: Server, echo: int) -> None:
    source = """
import os, socket, threading
def f(port):
    host, _, at = os.environ["https_proxy"].removeprefix("http://").partition(":")
    with socket.create_connection((host, int(at)), 30) as sock:
        sock.sendall(f"CONNECT 127.0.0.1:{port} HTTP/1.1\\r\\n\\r\\n".encode())
        if b" 200 " not in sock.recv(4096):
            return "refused"
        sent = os.urandom(5_000_000)
        def send():
            sock.sendall(sent)
            sock.shutdown(socket.SHUT_WR)
        threading.Thread(target=send).start()
        found = bytearray()
        while part := sock.recv(65536):
            found += part
    return "the same" if found == sent else f"{len(found)} bytes"
"""
    assert said(server, source, echo) == "the same"


DIRECT = """
import errno, os, socket
def attempt(action):
    try:
        action()
    except OSError as error:
        return errno.errorcode.get(error.errno, type(error).__name__)
    return "allowed"
def tcp(host, port):
    return attempt(lambda: socket.create_connection((host, port), 5).close())
def unix(path, kind=socket.SOCK_STREAM):
    def act():
        with socket.socket(socket.AF_UNIX, kind) as sock:
            sock.connect(path)
    return attempt(act)
def family(*args):
    return attempt(lambda: socket.socket(*args).close())
"""


def test_everything_but_the_proxy_stays_out_of_reach(
    server: Server, backend: Backend, port: int, tmp_path: Path
) -> None:
    (own,) = backend.proxies.sockets
    with socket.socket(socket.AF_UNIX) as abstract, Proxy(tmp_path / "s", [f"127.0.0.1:{port}"]) as other:
        abstract.bind("")
        abstract.listen(1)
        hidden = abstract.getsockname()
        source = (
            DIRECT
            + f"""
def f(port):
    found = {{
        "the site": tcp("127.0.0.1", port), "the site by v6": tcp("::1", port), "an address": tcp("1.1.1.1", 443),
        "an address by v6": tcp("2606:4700:4700::1111", 443), "metadata": tcp("169.254.169.254", 80),
        "a name": attempt(lambda: socket.getaddrinfo("pypi.org", 443)),
        "udp": attempt(lambda: socket.socket(2, 2).sendto(b"x", ("1.1.1.1", 53))),
        "own path": unix({str(own)!r}), "another proxy": unix({str(other.path)!r}),
        "the engine": unix("/run/docker.sock"),
        "abstract": unix({hidden!r}), "abstract datagrams": unix({hidden!r}, socket.SOCK_DGRAM),
        "netlink": family(16, 3, 0), "packets": family(17, 3, 0), "raw": family(2, 3, 1), "raw v6": family(10, 3, 58),
        "ping": attempt(lambda: socket.socket(2, 2, 1).sendto(bytes((8, 0, 0, 0, 0, 0, 0, 0)), ("1.1.1.1", 0))),
        "vsock": family(40, 1, 0), "bluetooth": family(31, 3, 1),
        "kernel crypto": family(38, 5, 0),
    }}
    return "\\n".join(f"{{name}}: {{outcome}}" for name, outcome in found.items())
"""
        )
        found = dict(line.split(": ") for line in said(server, source, port).splitlines())
    nowhere = ("ECONNREFUSED", "ENETUNREACH", "EADDRNOTAVAIL")
    wanted = {
        "the site": nowhere, "the site by v6": nowhere, "an address": nowhere, "an address by v6": nowhere,
        "metadata": nowhere, "udp": nowhere, "a name": ("gaierror",), "own path": ("ENOENT",),
        "another proxy": ("ENOENT",), "the engine": ("ENOENT", "EACCES"), "abstract": ("ECONNREFUSED",),
        "abstract datagrams": ("ECONNREFUSED",), "ping": ("EPERM", "EACCES", "ENETUNREACH"),
        **dict.fromkeys(("netlink", "packets", "raw", "raw v6", "vsock", "bluetooth", "kernel crypto"), ("EPERM",)),
    }  # fmt: skip
    assert {name: outcome for name, outcome in found.items() if outcome not in wanted[name]} == {}
    assert found.keys() == wanted.keys()


def test_the_socket_itself_grants_no_more_than_the_list(server: Server, port: int) -> None:
    source = """
import socket
def f(request):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(30)
        sock.connect("/proxy")
        sock.sendall(request.encode())
        sock.shutdown(socket.SHUT_WR)
        text = b""
        try:
            while part := sock.recv(4096):
                text += part
        except ConnectionResetError:
            pass
    return text.decode("latin-1")
"""
    good = f"GET http://127.0.0.1:{port}/x HTTP/1.1\r\n\r\n"
    assert said(server, source, good).endswith("/x")
    for request, status in (
        ("CONNECT 1.1.1.1:443 HTTP/1.1\r\n\r\n", "403"),
        (f"CONNECT localhost:{port} HTTP/1.1\r\n\r\n", "403"),
        (f"CONNECT 127.1:{port} HTTP/1.1\r\n\r\n", "403"),
        (f"CONNECT [::ffff:127.0.0.1]:{port} HTTP/1.1\r\n\r\n", "400"),
        (f"GET http://127.0.0.1:{port}@example.org/ HTTP/1.1\r\n\r\n", "400"),
        ("GET http://example.org/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", "403"),
        ("GET / HTTP/1.1\r\nHost: example.org\r\n\r\n", "400"),
        ("\r\n\r\n", "400"),
    ):
        assert said(server, source, request).startswith(f"HTTP/1.1 {status}"), request
    # A second request on a connection goes where the first one went, whatever it names.
    both = good.replace("/x", "/1") + "GET http://example.org/2 HTTP/1.1\r\n\r\n"
    answer = said(server, source, both)
    assert "/1" in answer
    assert "403" not in answer


def test_the_socket_cannot_be_changed(server: Server) -> None:
    source = (
        DIRECT
        + """
def f():
    mode = oct(os.stat("/proxy").st_mode)
    acts = [lambda: os.chmod("/proxy", 0), lambda: os.unlink("/proxy"), lambda: os.rename("/proxy", "/tmp/p"),
            lambda: os.link("/proxy", "/tmp/p"), lambda: os.chown("/proxy", os.getuid(), os.getuid())]
    return mode + " " + " ".join(map(attempt, acts))
"""
    )
    mode, *outcomes = said(server, source).split()
    assert mode == "0o140666"
    assert set(outcomes) <= {"EROFS", "EPERM", "EBUSY", "EXDEV", "EACCES"}


def test_the_forwarder_is_nobodys_child_and_goes_with_its_run(server: Server) -> None:
    source = """
import os, sys
def f():
    try:
        os.wait()
    except ChildProcessError:
        return "no children"
    return "a child"
"""
    assert said(server, source) == "no children"
    jail: Any = server.jail
    assert server.quiet
    if os.geteuid() == 0:
        end = time.monotonic() + 30
        while len(jail.members()) > 2 and time.monotonic() < end:  # itself, and bubblewrap or docker-init
            time.sleep(0.01)
        assert len(jail.members()) == 2


def test_whoever_ends_the_forwarder_gains_nothing(backend: Backend, port: int) -> None:
    kill = "import os\ntry:\n    os.kill(-1, 9)\nexcept OSError:\n    pass\n" + FETCH
    with serving(backend, Options(hosts=(f"127.0.0.1:{port}",))) as server:
        answers = ran(server, kill, f"http://127.0.0.1:{port}/", "").answers
        assert all("refused" in answer.text for answer in answers)
        if server.usable:  # where the fork server is not process 1, it is among what was killed
            assert said(server, FETCH, f"http://127.0.0.1:{port}/next", "") == "/next"


def test_authorities_of_this_machine_are_known_inside(server: Server) -> None:
    import ssl

    if not ssl.create_default_context().get_ca_certs():
        pytest.skip("this machine trusts no authority: apt-get install ca-certificates")
    source = "import ssl\ndef f(): return 'some' if ssl.create_default_context().get_ca_certs() else 'none'"
    assert said(server, source) == "some"


STATE = """
import os, stat
def f():
    try:
        kind = "socket" if stat.S_ISSOCK(os.stat("/proxy").st_mode) else f"{os.stat('/proxy').st_size} bytes"
    except FileNotFoundError:
        kind = "nothing"
    return kind + " " + " ".join(sorted(name for name in os.environ if "proxy" in name.lower()))
"""


def test_without_declared_hosts_there_is_no_way(backend: Backend) -> None:
    for options, wanted in ((Options(), "nothing "), (Options(runtime="network"), "0 bytes ")):
        with serving(backend, options) as server:
            assert said(server, STATE) == wanted


def test_an_assessment_is_told_of_no_proxy(backend: Backend, port: int) -> None:
    """The verifier asks for no hosts; were there any in its jail, nothing would name or carry the way to them."""
    assert ask(backend, STATE, options=Options(hosts=(f"127.0.0.1:{port}",))).value == "socket "


@pytest.mark.parametrize("entry", ["", "a", "*:80", "a:b", "http://a:80", "a:80/x", "a b:1", "10.0.0.0/8:80"])
def test_what_is_no_host_is_refused(backend: Backend, entry: str) -> None:
    free = backend.free
    with pytest.raises(JailFault, match="is not name:port"):
        backend.launch(LIMITS, Options(hosts=("example.org:443", entry)))
    assert backend.free == free


def test_one_proxy_for_one_list_and_none_after_the_owner(isolation: Isolation, port: int) -> None:
    with open_backend(isolation, 3) as own:
        lists: list[tuple[str, ...]] = [(f"127.0.0.1:{port}",), ("127.0.0.1:1",), (f"127.0.0.1:{port}",)]
        for hosts, status in zip(lists, ("/", "403", "/"), strict=True):
            with serving(own, Options(hosts=hosts)) as server:
                assert said(server, FETCH, f"http://127.0.0.1:{port}/", "").startswith(status)
        sockets = own.proxies.sockets
        assert len(sockets) == 2
        assert all(path.is_socket() and path.parent.stat().st_mode & 0o077 == 0 for path in sockets)
    assert not any(path.exists() for path in sockets)
    assert (own.proxies.passed, own.proxies.refused) == (2, 1)


OWNER = """
import json, sys, time
from services.runtime.jail.backend import Options, open_backend
from services.runtime.jail.limits import Limits
from services.runtime.jail.session import Program, Server
from services.runtime.settings import Isolation
backend = open_backend(Isolation(**json.loads(sys.argv[1])), 2)
jail = backend.launch(Limits(), Options(hosts=("127.0.0.1:1",)))
server = Server(jail, Limits(), 60.0, proxy=True)
told = {"label": backend.label, "members": sorted(jail.members()), "sockets": list(map(str, backend.proxies.sockets))}
print(json.dumps(told), flush=True)
server.run(Program({"m.py": "import time\\ntime.sleep(600)"}, "m", "f"), [(1,)], 5.0, 600.0)
"""


def test_kill_9_leaves_no_socket_and_no_process(isolation: Isolation) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, isolation.model_dump_json()], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert owner.stdout is not None
        told = json.loads(owner.stdout.readline())
        (path,) = map(Path, told["sockets"])
        inode = path.stat().st_ino
    finally:
        owner.kill()
        owner.wait()
    assert path.exists()
    with open_backend(isolation, 1):
        # Somebody else may have taken the number since, and made a socket of the same name.
        assert not path.exists() or path.stat().st_ino != inode
        assert _until(lambda: not any(_lives(pid) for pid in told["members"]))


def _lives(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


def _until(what: Callable[[], bool]) -> bool:
    end = time.monotonic() + 30
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True
