"""`host:port` as people write it, IPv6 in brackets: read and written in one place."""

from __future__ import annotations

import re

from services.runtime.errors import UserError

_ADDRESS = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]+(?:%[\w.-]+)?)]|(?P<name>[^\s:\[\]]+)):(?P<port>\d{1,5})")


def host_and_port(address: str, setting: str) -> tuple[str, int]:
    """(host without brackets, port) of `host:port` or `[IPv6]:port`. Raises UserError that names the setting."""
    found = _ADDRESS.fullmatch(address.strip())
    if not found or not 0 < int(found["port"]) < 65536:
        form = "write host:port, such as 127.0.0.1:9092 or [::1]:9092"
        raise UserError(f"{address!r} is no broker address", setting, form)
    return found["v6"] or found["name"], int(found["port"])


def joined(host: str, port: int) -> str:
    """`host:port`, with brackets around what has colons of its own."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
