"""The way out of a jail for fixtures that declare hosts: an HTTP proxy outside it that lets through exactly those.

A jail has no network at all. One that may reach something is shown the Unix socket of such a proxy, and what it asks of
the proxy (CONNECT, or a request with an absolute URL) is held against the fixture's list of "name:port". Names are
resolved out here, and a declared name that resolves to a private address is refused: a list entry must not become a
way to the metadata service of a cloud or to a neighbour, unless it is that very address that was declared.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import re
import socket
import threading
from collections.abc import Iterable
from pathlib import Path

from services.runtime.jail.hosts import BadHost, Endpoint, endpoints

MAX_HEAD_BYTES = 16 * 1024
MAX_CONNECTIONS = 32
MAX_BYTES = 64 * 1024 * 1024
"""Per connection and direction."""
IDLE_S = 30.0
_REQUEST = re.compile(rb"([A-Z]{3,10}) (\S{1,4096}) HTTP/1\.[01]\Z")
_URL = re.compile(r"http://([^/?#@\s]+)([/?][\x21-\x7e]*)?\Z", re.ASCII)


class _Refused(Exception):
    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status
        self.why = why


class Proxy:
    """Serves one allow-list on a Unix socket from a thread of its own. Thread-safe; a context manager."""

    def __init__(self, path: Path, hosts: Iterable[str]) -> None:
        """Listen at `path`, which any user may connect to. Raises BadHost, OSError."""
        self._allowed = endpoints(hosts)
        self.path = path
        self.passed = 0
        self.refused = 0
        self._open = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        path.unlink(missing_ok=True)
        self._socket.bind(str(path))
        os.chmod(path, 0o666)
        self._socket.listen(MAX_CONNECTIONS)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="jail-proxy", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._loop.create_task(self._serve())
        self._loop.run_forever()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _serve(self) -> None:
        self._server = await asyncio.start_unix_server(self._connection, sock=self._socket, limit=MAX_HEAD_BYTES)

    def close(self) -> None:
        """Stop serving, drop what is open, remove the socket."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._socket.close()
        self.path.unlink(missing_ok=True)

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._open >= MAX_CONNECTIONS:
                raise _Refused(503, "too many connections")
            self._open += 1
            try:
                await self._proxied(reader, writer)
            finally:
                self._open -= 1
        except _Refused as refused:
            self.refused += 1
            body = f"{refused.why}\n".encode()
            head = f"HTTP/1.1 {refused.status} Refused\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            writer.write(head.encode() + body)
            with contextlib.suppress(OSError):
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, TimeoutError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    async def _proxied(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), IDLE_S)
        first, _, rest = head.partition(b"\r\n")
        target, opening = _understood(first, rest)
        if target not in self._allowed:
            raise _Refused(403, f"{target.host}:{target.port} is not among the hosts that this task declares")
        there, back = await self._connect(target)
        self.passed += 1
        try:
            if opening is None:
                writer.write(b"HTTP/1.1 200 Connected\r\n\r\n")
            else:
                back.write(opening)
            await asyncio.gather(_pump(reader, back), _pump(there, writer))
        finally:
            back.close()

    async def _connect(self, target: Endpoint) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            found = await asyncio.wait_for(
                self._loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM), IDLE_S
            )
        except OSError as error:
            raise _Refused(502, f"{target.host} does not resolve: {error}") from None
        for _, _, _, _, address in found:
            if _reachable(target.host, str(address[0])):
                # The address that was looked at is the one that is used: a second look-up could say something else.
                try:
                    return await asyncio.wait_for(asyncio.open_connection(str(address[0]), target.port), IDLE_S)
                except (OSError, TimeoutError):
                    continue
        raise _Refused(502, f"{target.host}:{target.port} cannot be reached, or has private addresses only")


def _reachable(declared: str, address: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(declared) == ipaddress.ip_address(address)
    return ipaddress.ip_address(address).is_global


def _understood(first: bytes, rest: bytes) -> tuple[Endpoint, bytes | None]:
    """(where to, what to send there first); None for a tunnel. Raises _Refused."""
    match = _REQUEST.match(first)
    if match is None:
        raise _Refused(400, "no HTTP/1.1 request")
    method, where = match[1], match[2].decode("ascii", "replace")
    try:
        if method == b"CONNECT":
            return Endpoint.parse(where), None
        url = _URL.match(where)
        if url is None:
            raise _Refused(400, "a request to a proxy names an http:// URL, or is a CONNECT")
        target = Endpoint.parse(url[1], default_port=80)
    except BadHost as error:
        raise _Refused(400, str(error)) from None
    kept = [
        line
        for line in rest.split(b"\r\n")
        if line and line.split(b":")[0].strip().lower() not in (b"host", b"connection", b"proxy-connection")
    ]
    name = f"[{target.host}]" if ":" in target.host else target.host
    lines = [
        b"%s %s HTTP/1.1" % (method, (url[2] or "/").encode()),
        b"Host: " + f"{name}:{target.port}".encode(),
        b"Connection: close",
        *kept,
    ]
    return target, b"\r\n".join(lines) + b"\r\n\r\n"


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until the end, a pause longer than `IDLE_S`, or `MAX_BYTES`; then say that nothing follows."""
    left = MAX_BYTES
    try:
        while left > 0 and (data := await asyncio.wait_for(reader.read(min(65_536, left)), IDLE_S)):
            left -= len(data)
            writer.write(data)
            await asyncio.wait_for(writer.drain(), IDLE_S)
    finally:
        with contextlib.suppress(OSError):
            if writer.can_write_eof():
                writer.write_eof()
