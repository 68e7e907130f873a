"""The allow-list proxy: what a fixture declared passes, all else is refused with a reason, private ways are shut."""

import http.server
import socket
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.runtime.jail.hosts import BadHost, Endpoint
from services.runtime.jail.proxy import Proxy, _reachable, _Refused, _understood


class Hello(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = f"{self.path} {self.headers['Host']}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


@pytest.fixture
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hello) as found:
        thread = threading.Thread(target=found.serve_forever, daemon=True)
        thread.start()
        yield found.server_address[1]
        found.shutdown()


def said(path, text: str) -> str:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(10)
        sock.connect(str(path))
        sock.sendall(text.encode())
        parts = []
        while data := sock.recv(65_536):
            parts.append(data)
    return b"".join(parts).decode()


def test_a_declared_host_is_reached_and_another_is_not(tmp_path, server):
    with Proxy(tmp_path / "s", [f"127.0.0.1:{server}"]) as proxy:
        got = said(proxy.path, f"GET http://127.0.0.1:{server}/a?b HTTP/1.1\r\nHost: evil\r\n\r\n")
        assert got.startswith("HTTP/1.0 200")
        assert got.endswith(f"/a?b 127.0.0.1:{server}")  # the Host header is the proxy's own, not the caller's
        tunnel = f"CONNECT 127.0.0.1:{server} HTTP/1.1\r\n\r\nGET /t HTTP/1.0\r\nHost: x\r\n\r\n"
        assert "200 Connected" in said(proxy.path, tunnel)
        for request in (
            "GET http://127.0.0.1:1/ HTTP/1.1\r\n\r\n",
            f"GET http://localhost:{server}/ HTTP/1.1\r\n\r\n",
            f"CONNECT 127.0.0.2:{server} HTTP/1.1\r\n\r\n",
            f"CONNECT 127.1:{server} HTTP/1.1\r\n\r\n",
            f"CONNECT 2130706433:{server} HTTP/1.1\r\n\r\n",
            "CONNECT 169.254.169.254:80 HTTP/1.1\r\n\r\n",
        ):
            assert said(proxy.path, request).startswith("HTTP/1.1 403"), request
        for request in (
            "GET / HTTP/1.1\r\n\r\n",
            "hello\r\n\r\n",
            f"GET http://127.0.0.1:{server}@evil/ HTTP/1.1\r\n\r\n",
            f"GET ftp://127.0.0.1:{server}/ HTTP/1.1\r\n\r\n",
        ):
            assert said(proxy.path, request).startswith("HTTP/1.1 400"), request
        assert (proxy.passed, proxy.refused) == (2, 10)
    assert not (tmp_path / "s").exists()


def test_a_name_that_resolves_to_a_private_address_is_refused(tmp_path, server):
    """A declared name must not become a way to what stands beside the machine."""
    with Proxy(tmp_path / "s", [f"localhost:{server}"]) as proxy:
        assert said(proxy.path, f"GET http://localhost:{server}/ HTTP/1.1\r\n\r\n").startswith("HTTP/1.1 502")


@pytest.mark.parametrize(
    ("declared", "address", "reachable"),
    [
        ("pypi.org", "151.101.0.223", True),
        ("pypi.org", "10.0.0.1", False),
        ("pypi.org", "169.254.169.254", False),
        ("pypi.org", "::1", False),
        ("pypi.org", "fd00::1", False),
        ("10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("::1", "0:0:0:0:0:0:0:1", True),
    ],
)
def test_private_addresses_only_by_themselves(declared, address, reachable):
    assert _reachable(declared, address) is reachable


@pytest.mark.parametrize(
    "text", [None, 80, "", "a", "a:", "a:0", "a:65536", "a b:1", "*:80", "a:80:90", "a/../b:80", "-a:1", "ä:1"]
)
def test_a_malformed_entry_is_refused(text):
    with pytest.raises(BadHost):
        Endpoint.parse(text)


def test_one_spelling_of_a_name():
    assert Endpoint.parse("PyPI.org:443") == Endpoint("pypi.org", 443)
    assert Endpoint.parse("[::1]:8080") == Endpoint("::1", 8080)


@settings(deadline=None)
@given(st.binary(max_size=200), st.binary(max_size=200))
def test_no_head_raises_anything_but_a_refusal(first, rest):
    try:
        _understood(first, rest)
    except _Refused:
        return
