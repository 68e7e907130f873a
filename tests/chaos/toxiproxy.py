"""A real Toxiproxy between the services and what they talk to."""

from __future__ import annotations

import contextlib
import json
import lzma
import os
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from infra.local.rundir import free_port


class Toxiproxy:
    """Its HTTP interface. Links are named; a fault on one hits every connection over it."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request, timeout=10) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def link(self, name: str, listen: int, upstream: int) -> str:
        """Make a link; returns the address to connect to."""
        address = f"127.0.0.1:{listen}"
        upstream_address = f"127.0.0.1:{upstream}"
        self._call("POST", "/proxies", {"name": name, "listen": address, "upstream": upstream_address, "enabled": True})
        return address

    def poison(self, link: str, kind: str, stream: str, **attributes: int) -> None:
        """Add one toxic (`latency`, `bandwidth`, `timeout`, `reset_peer`, `limit_data`, `slicer`) to a link."""
        body = {"name": f"{kind}-{stream}", "type": kind, "stream": stream, "attributes": attributes}
        self._call("POST", f"/proxies/{link}/toxics", body)

    def heal(self, link: str) -> None:
        """Take all toxics off a link and open it."""
        for toxic in self._call("GET", f"/proxies/{link}/toxics"):
            self._call("DELETE", f"/proxies/{link}/toxics/{toxic['name']}")
        self._call("POST", f"/proxies/{link}", {"enabled": True})

    def cut(self, link: str) -> None:
        """Close every connection of a link and refuse new ones until healed."""
        self._call("POST", f"/proxies/{link}", {"enabled": False})

    def reachable(self) -> bool:
        with contextlib.suppress(OSError):
            self._call("GET", "/proxies")
            return True
        return False


@contextlib.contextmanager
def toxiproxy(equipment: Path, folder: Path) -> Iterator[Toxiproxy]:
    """A running server, unpacked into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    binary = folder / "toxiproxy-server"
    binary.write_bytes(lzma.decompress((equipment / "toxiproxy" / "toxiproxy-server.xz").read_bytes()))
    binary.chmod(0o755)
    port = free_port()
    environment = {**os.environ, "LOG_LEVEL": "error"}
    with (folder / "toxiproxy.log").open("wb") as log:
        server = subprocess.Popen(
            [str(binary), "-host", "127.0.0.1", "-port", str(port)], stdout=log, stderr=log, env=environment
        )
    try:
        proxy = Toxiproxy(port)
        deadline = time.monotonic() + 20
        while not proxy.reachable():
            if time.monotonic() > deadline or server.poll() is not None:
                raise RuntimeError(f"toxiproxy does not answer: {(folder / 'toxiproxy.log').read_text()[-500:]}")
            time.sleep(0.05)
        yield proxy
    finally:
        server.kill()
        server.wait()
