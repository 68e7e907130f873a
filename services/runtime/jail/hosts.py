"""The entries of a fixture's list of hosts: what may be declared, in one spelling, wherever the list is read."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_ENTRY = re.compile(r"([a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?|\[[0-9a-f:]{2,45}\]):([1-9][0-9]{0,4})\Z", re.ASCII)


class BadHost(ValueError):
    """An entry of a fixture's host list is not "name:port"."""


@dataclass(frozen=True)
class Endpoint:
    """One declared "name:port"; names in lower case without a last dot, IPv6 addresses without brackets."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str, default_port: int | None = None) -> Endpoint:
        """Raises BadHost."""
        if not isinstance(text, str):
            raise BadHost(f"{text!r:.80} is not name:port")
        text = text.lower()
        if default_port is not None and not re.search(r":[0-9]+\Z", text):
            text = f"{text}:{default_port}"
        match = _ENTRY.match(text)
        if match is None or int(match[2]) > 65535:
            raise BadHost(f"{text[:80]!r} is not name:port")
        return cls(match[1].strip("[]").rstrip("."), int(match[2]))


def endpoints(hosts: Iterable[str]) -> frozenset[Endpoint]:
    """The declared endpoints. Raises BadHost."""
    return frozenset(Endpoint.parse(host) for host in hosts)
