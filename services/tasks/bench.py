"""Runs our own trees (references, generated bugs, an imported benchmark) in a limited subprocess and asks them.

For certifying check sets, not for judging policies: the far side is a plain process with CPU and memory limits, where
the verifier uses a sandbox.
"""

import contextlib
import selectors
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from services.tasks import bench_worker, comparators, values
from services.tasks.comparators import Outcome

MEMORY_BYTES = 1 << 30
# Wall seconds granted beyond the CPU limit of a call, for a machine that is busy with other work.
WALL_SLACK_S = 5.0


class Bench:
    """One subprocess that is started when first asked and replaced when it stops answering; a context manager."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = b""
        self.loaded: tuple[str, str] | None = None
        """Source and entry of the candidate that answers."""

    def __enter__(self) -> "Bench":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def load(self, source: str, entry: str) -> str | None:
        """Import a candidate; the name of the exception that this raised, or None."""
        self.loaded = (source, entry)
        reply = self._ask("load " + values.dumps((entry, source)), WALL_SLACK_S)
        if reply == "ok":
            return None
        return reply.removeprefix("raised ") if reply is not None else "BaseException"

    def ask(self, args: tuple[Any, ...], comparator: str, cpu_s: float) -> Outcome | None:
        """The outcome of one call, or None: it ran out of time, died, or answered with a foreign type."""
        return self.ask_text(values.dumps(args), comparator, cpu_s)

    def ask_text(self, args: str, comparator: str, cpu_s: float) -> Outcome | None:
        """As `ask`, with the arguments as `values.dumps` writes them: for those who ask them again and again."""
        drain, after = int(comparators.drains(comparator)), int(comparators.wants_arguments(comparator))
        reply = self._ask(f"call {cpu_s} {drain} {after} {args}", cpu_s + WALL_SLACK_S)
        if reply is None:
            assert self.loaded is not None
            self.load(*self.loaded)
            return None
        word, _, text = reply.partition(" ")
        if word == "raised":
            return Outcome.raised(tuple(text.split("+")))
        if word != "value":
            return None
        node, args_after = values.parse_json(text)
        return Outcome(values.decode(node), args_after=values.decode(args_after) if after else None)

    def _ask(self, request: str, wall_s: float) -> str | None:
        process = self._process or self._start()
        assert process.stdin is not None
        try:
            process.stdin.write(request.encode() + b"\n")
            process.stdin.flush()
            line = self._read_line(process, wall_s)
        except BrokenPipeError:
            line = None
        if line is None:
            self._stop()
        return line

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-I", "-B", bench_worker.__file__, str(Path(values.__file__)), str(MEMORY_BYTES)]
        self._buffer = b""
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
            cwd="/",
            bufsize=0,
        )
        return self._process

    def _read_line(self, process: subprocess.Popen[bytes], wall_s: float) -> str | None:
        assert process.stdout is not None
        deadline = time.monotonic() + wall_s
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                left = deadline - time.monotonic()
                if left <= 0 or not selector.select(left):
                    return None
                chunk = process.stdout.read(1 << 16)
                if not chunk:
                    return None
                self._buffer += chunk
        line, self._buffer = self._buffer.split(b"\n", 1)
        return line.decode()

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
