"""Structured logs: one JSON object per line with service and run, and the client libraries' warnings among them."""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TextIO

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_MAX_CHARS = 4000
_NOISY = frozenset({"kafka.net.selector"})
"""Loggers whose warnings tell of a busy machine, many times a second, and of nothing that a person could do."""


class Log:
    """Writes events as JSON lines. Never raises: a full disk under a log must not stop a service."""

    def __init__(self, service: str, run: str, stream: TextIO | None = None, level: str = "info") -> None:
        self._base = {"service": service, "run": run, **_pod()}
        self._stream = stream or sys.stderr
        self._level = _LEVELS[level]
        self._lock = threading.Lock()

    def debug(self, event: str, **fields: Any) -> None:
        self._write("debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._write("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._write("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._write("error", event, fields)

    def exception(self, event: str, error: BaseException, **fields: Any) -> None:
        """An error with its traceback."""
        trace = "".join(traceback.format_exception(error))
        self._write("error", event, {**fields, "error": _describe(error), "traceback": trace[-_MAX_CHARS:]})

    def _write(self, level: str, event: str, fields: dict[str, Any]) -> None:
        if _LEVELS[level] < self._level:
            return
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        entry = {"at": at, "level": level, **self._base, "event": event, **fields}
        try:
            line = json.dumps(entry, default=str)
            with self._lock:
                self._stream.write(line + "\n")
                self._stream.flush()
        except (OSError, ValueError):
            return


class _Bridge(logging.Handler):
    """Brings warnings of client libraries into the same lines, the same text at most once per interval."""

    def __init__(self, log: Log, every_s: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(logging.WARNING)
        self._log = log
        self._every = every_s
        self._clock = clock
        self._last: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        if record.name in _NOISY and record.levelno < logging.ERROR:
            return
        key = f"{record.name}:{record.msg}"
        now = self._clock()
        if now - self._last.get(key, float("-inf")) < self._every:
            return
        if len(self._last) > 1000:
            self._last.clear()
        self._last[key] = now
        write = self._log.error if record.levelno >= logging.ERROR else self._log.warning
        fields = {"error": _describe(record.exc_info[1])} if record.exc_info and record.exc_info[1] else {}
        write("client", logger=record.name, message=record.getMessage()[:_MAX_CHARS], **fields)


def bridge(log: Log) -> Callable[[], None]:
    """Send the standard library's log records of level WARNING and up through `log`; returns what undoes it."""
    handler = _Bridge(log)
    root = logging.getLogger()
    root.addHandler(handler)
    return lambda: root.removeHandler(handler)


def _pod() -> dict[str, str]:
    """The pod's name, where this is one: lines of many pods come together in one place."""
    if "KUBERNETES_SERVICE_HOST" not in os.environ:
        return {}
    return {"pod": os.environ.get("POD_NAME") or socket.gethostname()}


def _describe(error: BaseException | None) -> str:
    return f"{type(error).__name__}: {error}"[:_MAX_CHARS]
