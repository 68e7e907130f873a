"""The proxies of one owner of jails: one for each list of hosts, started when the first jail that needs it is.

What a list grants: HTTP and HTTPS (any TCP, through CONNECT) to exactly the named "name:port", as long as that name
has a public address or is itself the address; nothing else, and to nobody but the jails that were launched with that
very list. Such a jail still has a network namespace with nothing in it but its own loopback; what it gets is one more
file, a Unix socket, which leads to the proxy (`proxy.py`), and a process inside that carries TCP connections to it
(`forwarder.py`). What a declared host is told is out of anybody's sight, so a list belongs to exploration only: an
assessment never has one, and neither does a fixture whose workspace must not talk to the outside.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Lock

from services.runtime.jail.hosts import BadHost, Endpoint, endpoints
from services.runtime.jail.limits import JailFault
from services.runtime.jail.proxy import Proxy


class Proxies:
    """Thread-safe."""

    def __init__(self, place: Callable[[str], Path]) -> None:
        """`place(name)`: where the owner's socket of that name lies, in a folder that nobody else can enter."""
        self._place = place
        self._lock = Lock()
        self._running: dict[frozenset[Endpoint], Proxy] = {}
        self._closed = False

    def socket(self, hosts: tuple[str, ...]) -> Path:
        """Where the proxy for these hosts listens. Raises JailFault."""
        try:
            allowed = endpoints(hosts)
            with self._lock:
                if self._closed:
                    raise JailFault("its owner is closed")
                if allowed not in self._running:
                    self._running[allowed] = Proxy(self._place(f"proxy{len(self._running)}"), hosts)
                return self._running[allowed].path
        except (BadHost, OSError) as error:
            raise JailFault(f"no proxy for this sandbox: {error}") from error

    @property
    def sockets(self) -> list[Path]:
        """Where they listen."""
        with self._lock:
            return [proxy.path for proxy in self._running.values()]

    @property
    def passed(self) -> int:
        """How many connections reached what they asked for."""
        with self._lock:
            return sum(proxy.passed for proxy in self._running.values())

    @property
    def refused(self) -> int:
        """How many requests were answered with an error instead."""
        with self._lock:
            return sum(proxy.refused for proxy in self._running.values())

    def close(self) -> None:
        """End them and remove their sockets. The counts stay."""
        with self._lock:
            running = [] if self._closed else list(self._running.values())
            self._closed = True
        for proxy in running:
            proxy.close()
