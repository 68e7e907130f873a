"""Which owner of containers this is on its machine, and the sweep of what killed owners left in the engine."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from services.runtime.jail import cgroup
from services.runtime.jail.docker.group import PREFIX, leftovers, remove
from services.runtime.jail.instance import MAX_INSTANCES, SLOTS, Instance, lock_folder

LABEL = "rollstream.jail"
_FIRST_UID = 70_001


class DockerInstance(Instance):
    """A held number among the owners of containers, which are numbered apart from the owners of bubblewrap jails."""

    def __init__(self, folder: Path | None = None) -> None:
        """Take the first free number. Raises UserError when all are taken or the folder is not ours."""
        super().__init__(folder or lock_folder().with_name(f"{lock_folder().name}-docker"))
        machine = ""
        with contextlib.suppress(OSError):
            machine = Path("/etc/machine-id").read_text().strip()
        seen = f"{machine} {socket.gethostname()} {os.geteuid()} {self._folder}"
        self._machine = hashlib.sha256(seen.encode()).hexdigest()[:16]

    @property
    def label(self) -> str:
        """Prefix of the names of this instance's control groups."""
        return f"{PREFIX}{self.number}"

    def uid(self, slot: int) -> int:
        """User id of a slot inside its container, which is the same outside unless the engine maps users."""
        return _FIRST_UID + self.number * SLOTS + slot

    def owner(self, number: int | None = None) -> str:
        """Value of the label `rollstream.jail`: several machines may use one engine."""
        return f"{PREFIX}{self.number if number is None else number}@{self._machine}"

    def dead(self) -> Iterator[int]:
        """This number (its last owner is dead) and all that nobody holds, each held while it is looked at."""
        for number in range(MAX_INSTANCES):
            fd = None if number == self.number else self._try(number)
            if number != self.number and fd is None:
                continue
            try:
                yield number
            finally:
                if fd is not None:
                    os.close(fd)

    def sweep_engine(self, api: Any, layout: cgroup.Layout) -> list[str]:
        """Remove what dead instances left: containers with their volumes, groups, files. Raises DockerException."""
        found: list[str] = []
        for number in self.dead():
            found += self.sweep_number(api, layout, number)
        return found

    def sweep_number(self, api: Any, layout: cgroup.Layout, number: int) -> list[str]:
        """Remove everything of one instance, whose jails nobody uses any more. Raises DockerException.

        Groups go too when the engine is away: that ends what runs in them.
        """
        from docker.errors import APIError

        found: list[str] = []
        try:
            for container in api.containers(all=True, filters={"label": f"{LABEL}={self.owner(number)}"}):
                with contextlib.suppress(APIError):  # already on its way out
                    api.remove_container(container["Id"], force=True, v=True)
                found.append(f"container {container['Id'][:12]}")
        finally:
            found += self._remove_files(number)
            for name in leftovers(layout, f"{PREFIX}{number}-"):
                if remove(layout, name):
                    found.append(f"control group {name}")
        return found
