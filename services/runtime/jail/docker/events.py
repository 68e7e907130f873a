"""What the engine itself reports while jails run: that it died, or that somebody ended a container from outside.

A container that ends because the engine went away, or because a person killed it, says nothing about the candidate.
"""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any

from services.runtime.jail.limits import JailFault


class Events:
    """Follows the engine's event stream in one thread. Thread-safe."""

    def __init__(self, api: Any, label: str) -> None:
        """`label`: only containers with it."""
        self._api, self._label = api, label
        self._changed = threading.Condition()
        self._stream: Any = None
        self._epoch = 0
        self._lives = False
        self._killed: set[str] = set()
        self._out_of_memory: set[str] = set()
        self._died: set[str] = set()
        self._closed = False

    def ensure(self) -> int:
        """Number of the engine's life in which containers that are started now run; opens the stream where needed.

        Raises JailFault.
        """
        from docker.errors import DockerException

        with self._changed:
            if not self._lives and not self._closed:
                try:
                    self._stream = self._api.events(filters={"label": self._label, "type": "container"}, decode=True)
                except (DockerException, OSError) as error:
                    raise JailFault(f"the Docker Engine does not answer: {error}") from error
                self._lives = True
                self._epoch += 1
                threading.Thread(target=self._follow, args=(self._stream,), name="docker-events", daemon=True).start()
            return self._epoch

    def _follow(self, stream: Any) -> None:
        with contextlib.suppress(Exception):  # whatever ends it (a broken connection, a broken line), it ended
            for event in stream:
                with self._changed:
                    self._note(str(event.get("Action", "")), str((event.get("Actor") or {}).get("ID", "")))
                    self._changed.notify_all()
        with self._changed:
            self._lives = False
            self._changed.notify_all()

    def _note(self, action: str, container: str) -> None:
        if action in ("kill", "stop", "restart"):
            self._killed.add(container)
        elif action == "oom":
            self._out_of_memory.add(container)
        elif action == "die":
            self._died.add(container)
        elif action == "destroy":  # the last that is heard of it
            for found in (self._killed, self._out_of_memory, self._died):
                found.discard(container)

    def lives(self, epoch: int, grace_s: float) -> bool:
        """Whether the engine still lives the life that `ensure` named; its end may show a moment late."""
        end = time.monotonic() + grace_s
        with self._changed:
            while self._lives and self._epoch == epoch:
                left = end - time.monotonic()
                if left <= 0:
                    return True
                self._changed.wait(left)
            return False

    def end_of(self, container: str, deadline_s: float) -> tuple[bool, bool]:
        """(killed through the engine, out of memory) of an ended container, once its end was reported or time is up."""
        end = time.monotonic() + deadline_s
        with self._changed:
            while container not in self._died and self._lives and (left := end - time.monotonic()) > 0:
                self._changed.wait(left)
            return container in self._killed, container in self._out_of_memory

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._closed = True
            stream = self._stream
        if stream is not None:
            with contextlib.suppress(Exception):  # the engine may have closed it first
                stream.close()
