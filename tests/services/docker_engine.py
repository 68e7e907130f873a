"""A Docker Engine of the tests' own: private folder and socket, no network of its own, and nothing of it left behind.

`shared_engine` gives one engine to a whole test session, however many pytest-xdist workers it has. A small guardian
process owns it and ends it when the last of them is gone, however they end.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

_START_S = 60.0
_STOP_S = 20.0
ROOT = Path(__file__).parents[2]


def missing() -> str:
    """Why no engine can run here; empty when one can."""
    if os.geteuid() != 0:
        return "only root can start a Docker Engine of its own"
    if shutil.which("dockerd") is None:
        return "dockerd is not installed: make equipment (apt-get install docker.io)"
    return ""


@dataclass
class Engine:
    """A running engine. `url` is its address."""

    folder: Path
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        return f"unix://{self.folder / 's'}"

    def start(self) -> None:
        """Start dockerd and wait until it answers. Raises RuntimeError with the end of its log."""
        self.folder.mkdir(parents=True, exist_ok=True)
        line = [
            *self._program(), "--data-root", self.folder / "data", "--exec-root", self.folder / "exec",
            "--pidfile", self.folder / "pid", "--host", self.url, "--shutdown-timeout=2", "--log-level=warn",
            *self._networks(), *self._runtimes(),
        ]  # fmt: skip
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(line, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        end, told = time.monotonic() + _START_S, time.monotonic()
        while not self._answers():
            if self.process.poll() is not None or time.monotonic() > end:
                said = (self.folder / "log").read_text(errors="replace")[-600:]
                self.kill()
                raise RuntimeError(f"dockerd does not start: {said}")
            if time.monotonic() - told > 5:
                told = time.monotonic()
                print("waiting for dockerd", file=sys.stderr, flush=True)
            time.sleep(0.05)

    def _program(self) -> list[str]:
        return ["dockerd"]

    def _networks(self) -> list[str]:
        """No network at all: nothing of the host's is touched."""
        return ["--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false"]

    def _runtimes(self) -> list[str]:
        """gVisor where it is installed, with the arguments that it needs here."""
        if (path := shutil.which("runsc")) is None:
            return []
        wrapper = self.folder / "runsc"
        wrapper.write_text(f'#!/bin/sh\nexec {path} --network=none --oci-seccomp "$@"\n')
        wrapper.chmod(0o755)
        return [f"--add-runtime=runsc={wrapper}"]

    def _answers(self) -> bool:
        import socket

        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(5)
            sock.connect(str(self.folder / "s"))
            sock.sendall(b"GET /_ping HTTP/1.0\r\nHost: x\r\n\r\n")
            return b"200 OK" in sock.recv(4096)
        return False

    def kill(self) -> None:
        """SIGKILL, as a crash of the engine would be; its containers live on until it is started again."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None
            for pid in self.leftovers(shims=False):  # its containerd; a half-dead one would hinder the next start
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            while self.leftovers(shims=False):
                time.sleep(0.02)
            # Where nothing reaps orphans, the dead containerd's number still looks alive to the next dockerd.
            (self.folder / "exec" / "containerd" / "containerd.pid").unlink(missing_ok=True)

    def stop(self) -> None:
        """End it with everything that it started or mounted, and remove its folder."""
        if self.process is not None:
            self._remove_containers()
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(_STOP_S)
            self.kill()
        for pid in self.leftovers():
            for victim in [*_descendants(pid), pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(victim, signal.SIGKILL)
        end = time.monotonic() + _STOP_S
        while (mounts := self.mounts()) and time.monotonic() < end:
            for at in reversed(mounts):
                subprocess.run(["umount", "--lazy", at], check=False, capture_output=True)
        if not self.mounts():
            shutil.rmtree(self.folder, ignore_errors=True)
        for at in Path("/sys/fs/cgroup").glob("*/docker"):
            with contextlib.suppress(OSError):  # another engine's
                at.rmdir()

    def _remove_containers(self) -> None:
        from docker import APIClient
        from docker.errors import DockerException

        with contextlib.suppress(DockerException, OSError):
            api = APIClient(base_url=self.url, version="auto", timeout=10)
            for container in api.containers(all=True):
                with contextlib.suppress(DockerException):
                    api.remove_container(container["Id"], force=True, v=True)
            api.close()

    def leftovers(self, shims: bool = True) -> list[int]:
        """Processes that have its folder on their command line: dockerd, containerd, and those that keep containers."""
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdigit() and int(entry) != os.getpid():
                with contextlib.suppress(OSError):
                    words = Path("/proc", entry, "cmdline").read_bytes().split(b"\0")
                    name = Path(os.fsdecode(words[0])).name
                    inside = any(f"{self.folder}/".encode() in word for word in words)
                    if inside and (name in ("dockerd", "containerd") or (shims and name.startswith("containerd-"))):
                        found.append(int(entry))
        return found

    def mounts(self) -> list[str]:
        """Mount points below its folder, outer ones first."""
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        return sorted(at for line in lines if (at := line.split()[4]).startswith(f"{self.folder}/"))


def _descendants(pid: int) -> list[int]:
    found = []
    with contextlib.suppress(OSError):
        for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
            found += [*_descendants(child), child]
    return found


@contextlib.contextmanager
def private_engine(folder: Path) -> Iterator[Engine]:
    """An engine for one test alone. Skips with the reason where none can run."""
    if why := missing():
        pytest.skip(why)
    engine = Engine(folder)
    try:
        try:
            engine.start()
        except RuntimeError as error:
            pytest.skip(str(error))
        yield engine
    finally:
        engine.stop()


def shared_engine(factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the session's engine, for a session-scoped fixture. Skips with the reason where none can run."""
    if why := missing():
        pytest.skip(why)
    base = factory.getbasetemp()
    folder = (base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "docker-engine"
    folder.mkdir(exist_ok=True)
    # A user holds this lock together with the other users; whoever gets it alone knows that there are none.
    with (folder / "users").open("a") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        with (folder / "starting").open("a") as starting:
            fcntl.flock(starting, fcntl.LOCK_EX)
            if not (folder / "engine" / "ready").exists():
                _start_guardian(folder)
        yield Engine(folder / "engine").url


def _start_guardian(folder: Path) -> None:
    line = [sys.executable, "-m", "tests.services.docker_engine", str(folder)]
    said = folder / "guardian.log"
    with said.open("wb") as log:
        guardian = subprocess.Popen(
            line, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    end = time.monotonic() + _START_S + 10
    while not (folder / "engine" / "ready").exists():
        if guardian.poll() is not None or time.monotonic() > end:
            pytest.skip(f"no Docker Engine: {said.read_text(errors='replace')[-600:]}")
        time.sleep(0.05)


def main() -> None:
    """The guardian: start, wait until nobody uses it any more, stop."""
    folder = Path(sys.argv[1])
    engine = Engine(folder / "engine")
    try:
        engine.start()
        (engine.folder / "ready").touch()
        with (folder / "users").open("a") as users:
            while True:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    engine.stop()  # a new user waits for the lock meanwhile, and then finds no engine
                    return
                time.sleep(0.3)
    finally:
        engine.stop()


if __name__ == "__main__":
    main()
