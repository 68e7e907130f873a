"""One node of a real Kubernetes of the tests' own: start, kubectl with deadlines, commands inside its network, stop."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tests.k8s.progress import say

T = TypeVar("T")


class Refused(AssertionError):
    """kubectl said no, or was silent for too long; the text is what it said."""


class Cluster:
    """A cluster in `folder`, run by the script of the shared equipment in namespaces of its own (see apart.sh).

    `borrowed`: one that somebody else started there, which is neither started nor stopped.
    """

    def __init__(self, script: Path, folder: Path, borrowed: bool = False) -> None:
        self.script, self.folder, self.borrowed = script, folder, borrowed
        self._name = f"rollstream-{folder.parent.name}"
        self._holder = folder / "apart.pid"
        self._apart: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start the node and wait until it is ready."""
        line = [str(Path(__file__).with_name("apart.sh")), self._name]
        self._apart = spawn(line)
        assert self._apart.stdout is not None
        assert self._apart.stderr is not None
        if self._apart.stdout.readline() != "ready\n":
            raise Refused(f"no namespaces of its own for the cluster: {self._apart.stderr.read()[-600:]}")
        self.folder.mkdir(parents=True, exist_ok=True)
        self._holder.write_text(str(self._apart.pid))
        self._script("start", timeout_s=180)

    def stop(self) -> None:
        """Stop everything and remove the folder. Safe to repeat, also on what never started."""
        if self.borrowed:
            return
        if self._apart is not None:
            with contextlib.suppress(Refused):
                self._script("stop", timeout_s=60)
            end(self._apart)
        sweep(self._name)
        number = subprocess.run(["cksum"], input=f"{self.folder.resolve()}\n", capture_output=True, text=True).stdout
        # What the script itself calls the cluster; there only when it had no time to remove it.
        shutil.rmtree(f"/run/kube-{number.split()[0]}", ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def line(self, verb: str, *arguments: str) -> list[str]:
        """The command line that does something with this cluster. Raises Refused before `start`."""
        plain = [str(self.script), verb, str(self.folder), *arguments]
        if self.borrowed and not self._holder.exists():
            return plain
        if not self._holder.exists():
            raise Refused("the cluster was not started")
        # Commands belong to the group of what they talk to: among its processes they get their share of the CPU.
        join = 'for group in /sys/fs/cgroup/*/cgroup.procs; do echo $$ >"$group"; done 2>/dev/null; exec "$0" "$@"'
        apart = ["nsenter", "--mount", "--cgroup", "--target", self._holder.read_text()]
        return [*apart, "sh", "-c", join, *plain]

    def keda(self) -> None:
        """Install KEDA and wait until it serves metrics."""
        self._script("keda", timeout_s=240)

    def load(self, image_archive: subprocess.Popen[bytes], timeout_s: float = 300) -> None:
        """Import the images that a running `docker save` writes on its standard output."""
        finish(spawn(self.line("load", "-"), stdin=image_archive.stdout), timeout_s)

    def _script(self, verb: str, *arguments: str, timeout_s: float) -> str:
        return finish(spawn(self.line(verb, *arguments)), timeout_s)

    def kubectl(self, *arguments: str, timeout_s: float = 60, given: str | None = None) -> str:
        """What kubectl prints; `given` is its standard input. Raises Refused."""
        stdin = subprocess.DEVNULL if given is None else subprocess.PIPE
        return finish(spawn(self.line("ctl", *arguments), stdin=stdin), timeout_s, given)

    def get(self, *arguments: str) -> Any:
        """The object that `kubectl get` finds."""
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))

    def inside(self, namespace: str, *command: str) -> list[str]:
        """A command line that runs here, but with the network and the names of a pod of `namespace`."""
        names = self.folder / f"resolv-{namespace}.conf"
        if not names.exists():
            server = (self.folder / "resolv.conf").read_text().strip()
            search = " ".join(f"{prefix}svc.cluster.local" for prefix in (f"{namespace}.", ""))
            names.write_text(f"{server}\nsearch {search} cluster.local\noptions ndots:5\n")
        # Entering another view of mounts is leaving the folder that one was in.
        mount = 'mount --bind "$0" /etc/resolv.conf && cd "$1" && shift && exec "$@"'
        return self.line("exec", "unshare", "--mount", "sh", "-c", mount, str(names), os.getcwd(), *command)


def spawn(line: Sequence[str], **streams: Any) -> subprocess.Popen[str]:
    """Start a command with all its children in a group of their own; its output is text to be read."""
    taken = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    return subprocess.Popen(line, text=True, start_new_session=True, **taken)


def end(process: subprocess.Popen[Any]) -> None:
    """End a command that `spawn` started, and its children."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def finish(process: subprocess.Popen[str], timeout_s: float, given: str | None = None) -> str:
    """What the command printed. Raises Refused when it failed or took too long; then, too, nothing of it is left."""
    try:
        said, errors = process.communicate(given, timeout_s)
    except subprocess.TimeoutExpired:
        end(process)
        said, errors = process.communicate()
        raise Refused(f"no end within {timeout_s:g} s: {_called(process)}\n{errors[-800:]}{said[-800:]}") from None
    except BaseException:
        end(process)
        raise
    if process.returncode:
        raise Refused(f"exit code {process.returncode}: {_called(process)}\n{errors[-3000:]}{said[-800:]}")
    return said


def _called(process: subprocess.Popen[str]) -> str:
    words = [str(word) for word in process.args]  # type: ignore[union-attr]  # spawn takes lists alone
    return " ".join(words[words.index("ctl") :] if "ctl" in words else words)


def sweep(name: str) -> list[int]:
    """End every process of the cgroup `name` and remove it in every hierarchy; returns who had to be ended."""
    ended: list[int] = []
    places = [place for place in Path("/sys/fs/cgroup").glob(f"*/{name}") if place.is_dir()]
    for _ in range(50):
        files = [file for place in places for file in place.rglob("cgroup.procs")]
        pids = {int(pid) for file in files for pid in _text(file).split()}
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        ended += sorted(pids - set(ended))
        if not pids:
            break
        time.sleep(0.1)
    for place in places:
        for folder in sorted((f for f in (place, *place.rglob("*")) if f.is_dir()), reverse=True):
            with contextlib.suppress(OSError):  # one that is being emptied this moment; said by whoever looks for it
                folder.rmdir()
    return ended


def _text(file: Path) -> str:
    with contextlib.suppress(OSError):
        return file.read_text()
    return ""


def until(look: Callable[[], T], timeout_s: float, what: str, every_s: float = 0.5) -> T:
    """What `look` returns once it is true. Raises AssertionError with what it was last.

    kubectl's refusals in between are waited out: while pods come and go some questions have no answer.
    """
    end, told = time.monotonic() + timeout_s, time.monotonic()
    last: Any = None
    while time.monotonic() < end:
        try:
            if last := look():
                return last
        except Refused as refused:
            last = str(refused)[-500:]
        if time.monotonic() - told > 15:
            told = time.monotonic()
            say(f"  waiting for {what}")
        time.sleep(every_s)
    raise AssertionError(f"{what} did not happen within {timeout_s:g} s; last seen: {last!r}")
