"""A broker as a subprocess for tests and benchmarks: start, kill -9, restart on the same port, always reaped."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

START_SECONDS = 30.0
ROOT = Path(__file__).resolve().parents[2]


class RunningBroker:
    """A broker process. `bootstrap` stays the same over `restart`."""

    def __init__(self, data: Path, **options: str | int) -> None:
        self._data = data
        self._options = options
        self._port = int(options.pop("port", 0))
        self._ready = data.parent / f"{data.name}.ready"
        self._process: subprocess.Popen[bytes] | None = None
        self.bootstrap = ""
        self.start()

    @property
    def pid(self) -> int:
        """Process id of the running broker."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start and wait until it serves; raises RuntimeError when it ends or takes too long."""
        self._ready.unlink(missing_ok=True)
        command = [
            sys.executable,
            "-m",
            "infra.broker",
            "--data",
            str(self._data),
            "--port",
            str(self._port),
            "--ready-file",
            str(self._ready),
        ]
        for name, value in self._options.items():
            command += [f"--{name.replace('_', '-')}", str(value)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + START_SECONDS
        while not self._ready.exists():
            if self._process.poll() is not None:
                raise RuntimeError(f"the broker ended with {self._process.returncode} before it served")
            if time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"the broker did not serve within {START_SECONDS} s")
            time.sleep(0.02)
        self.bootstrap = self._ready.read_text()
        self._port = int(self.bootstrap.rpartition(":")[2])

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM, and wait; returns the exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(number)
        try:
            return self._process.wait(timeout=START_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def restart(self) -> None:
        """Start again on the same data and port, stopping it first if it still runs."""
        self.stop()
        self.start()


@contextlib.contextmanager
def running_broker(data_dir: Path, **options: str | int) -> Iterator[RunningBroker]:
    """A broker on `data_dir` for the time of the block; options of `python -m infra.broker`, with `_` for `-`."""
    broker = RunningBroker(Path(data_dir), **options)
    try:
        yield broker
    finally:
        broker.stop()
