"""Liveness, readiness and metrics over HTTP, answered by a thread of its own."""

from __future__ import annotations

import logging
import socket
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer

from services.runtime.address import joined
from services.runtime.errors import UserError

LOOPBACK = "127.0.0.1"
_REQUEST_S = 10.0
_LOG = logging.getLogger(__name__)
"""Its records become lines of the service's own log."""


def _family(host: str, port: int) -> int:
    """Of the address that a host has first: a name may stand for an IPv6 one alone. Raises UserError."""
    try:
        return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
    except OSError as e:
        raise UserError(f"there is no such address to answer health at: {e}", host, "correct --health-host") from e


class HealthServer:
    """Serves `/healthz/live`, `/healthz/ready` and `/metrics`.

    Liveness says that the loop still turns; it never asks the broker, since restarting every process does not mend a
    broker. Readiness says that the service is caught up and owns its share of the partitions.
    """

    def __init__(
        self,
        live: Callable[[], bool],
        ready: Callable[[], bool],
        metrics: Callable[[], bytes],
        port: int = 0,
        host: str = LOOPBACK,
    ) -> None:
        host = host.removeprefix("[").removesuffix("]")
        family = _family(host, port)

        class Handler(BaseHTTPRequestHandler):
            timeout = _REQUEST_S

            def do_GET(self) -> None:
                if self.path == "/metrics":
                    self._answer(200, metrics(), "text/plain; version=0.0.4; charset=utf-8")
                elif self.path in ("/healthz/live", "/healthz/ready"):
                    good = live() if self.path.endswith("live") else ready()
                    self._answer(200 if good else 503, b"ok\n" if good else b"no\n", "text/plain")
                else:
                    self._answer(404, b"try /healthz/live, /healthz/ready or /metrics\n", "text/plain")

            def _answer(self, status: int, body: bytes, kind: str) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                del format, args  # a probe every second is no event

        class Server(ThreadingHTTPServer):
            address_family = family

            def server_bind(self) -> None:
                TCPServer.server_bind(self)  # its child would ask DNS for a name that nobody reads

            def handle_error(self, request: object, client_address: object) -> None:
                del request
                error = sys.exception()
                if not isinstance(error, OSError):  # whoever asked has gone meanwhile: no event
                    _LOG.error("a question about health from %s failed", client_address, exc_info=error)

        try:
            self._server = Server((host, port), Handler)
        except OSError as e:
            raise UserError(
                f"the health port cannot be opened: {e}", joined(host, port), "choose another one, or 0 for a free one"
            ) from e
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.2,), name="health", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop answering; returns within a fraction of a second."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(2.0)
