"""The bubblewrap backend: a `JailHost` per service owns spawner, slots and the staged interpreter of its jails."""

from __future__ import annotations

import array
import contextlib
import json
import os
import re
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from services.runtime.errors import UserError
from services.runtime.jail import cgroup, seccomp, tree
from services.runtime.jail.backend import PLAIN, Options
from services.runtime.jail.instance import SLOTS, Instance
from services.runtime.jail.limits import JailFault, Limits, Usage

_BOOT_S = 15.0
_GRACE_S = 0.05


@dataclass
class Slot:
    """One place for a jail: its user id and its control group."""

    number: int
    uid: int
    group: cgroup.Group
    limits: Limits | None = None


def find_bwrap() -> str:
    """Path of bubblewrap 0.8 or newer. Raises UserError."""
    path = shutil.which("bwrap")
    if path is None:
        raise UserError("bubblewrap (bwrap) is missing, so no sandbox can be made", do="apt-get install bubblewrap")
    try:
        text = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=10).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UserError(f"bubblewrap does not run: {error}", path, "apt-get install --reinstall bubblewrap") from error
    version = re.search(r"(\d+)\.(\d+)", text)
    if version is None or (int(version[1]), int(version[2])) < (0, 8):
        raise UserError(
            f"bubblewrap is {text.strip() or 'of unknown version'}, 0.8 or newer is needed", path, "upgrade it"
        )
    return path


def bwrap_arguments(bwrap: str, root: Path, limits: Limits) -> list[str]:
    """Command line of one jail: the interpreter is process 1, `root` is the only thing of the host that is named."""
    return [
        bwrap, "--unshare-all", "--unshare-user", "--disable-userns", "--as-pid-1", "--die-with-parent",
        "--new-session", "--hostname", "jail", "--ro-bind", str(root), "/", "--size", str(limits.tmp_bytes), "--tmpfs",
        "/tmp", "--chdir", "/tmp", "--seccomp", "3", "--", tree.PYTHON, "-I", "-S", "-B", tree.WORKER,
    ]  # fmt: skip


class BubblewrapJail:
    """One running jail: pipes to its worker and the kernel's evidence about it. Used by one thread at a time."""

    def __init__(
        self,
        host: JailHost,
        slot: Slot,
        process: tuple[int, int],
        pipes: tuple[int, int, int],
        before: cgroup.Counters | None,
    ) -> None:
        self._host = host
        self._slot = slot
        self._pid, self._pidfd = process
        self.requests, self.replies, self.log = pipes
        self._before = before
        self._spawner = host.spawner_pid
        self.started_s = time.monotonic()
        self.log_tail = b""
        self.closed = False

    @property
    def pid(self) -> int:
        """Host process id of the jail's outer bubblewrap."""
        return self._pid

    @property
    def uid(self) -> int:
        """User id of the slot; 0: the caller's own."""
        return self._slot.uid

    def members(self) -> set[int]:
        """Host process ids inside, as its control group knows them (empty without one)."""
        return self._slot.group.members()

    def cpu_s(self) -> float | None:
        """CPU seconds used so far by everything inside; None without a control group."""
        now = self._slot.group.counters()
        return None if now is None or self._before is None else now.cpu_s - self._before.cpu_s

    def host_wait_s(self) -> float | None:
        """Seconds for which the first inner process was runnable without a CPU; None when it is gone."""
        inner = self._inner()
        if inner is None:
            return None
        try:
            return int(Path(f"/proc/{inner}/schedstat").read_text().split()[1]) / 1e9
        except (OSError, IndexError, ValueError):
            return None

    def _inner(self) -> int | None:
        if select.select([self._pidfd], [], [], 0)[0]:
            return None  # it ended: its number may belong to somebody else by now
        with contextlib.suppress(OSError, ValueError, IndexError):
            return int(Path(f"/proc/{self._pid}/task/{self._pid}/children").read_text().split()[0])
        return None

    def close_requests(self) -> None:
        """No more requests: an honest worker ends."""
        if self.requests >= 0:
            os.close(self.requests)
            self.requests = -1

    def close(self) -> Usage:
        """Kill what is left, read the counters, give the slot back (retired when not clean). Never raises."""
        if self.closed:
            return Usage()
        self.closed = True
        group = self._slot.group
        wait_s = self.host_wait_s()
        early = self._ended_early()
        clean = self._end()
        lost = self._spawner_gone(_GRACE_S if early else 0.0)
        for fd in (self.requests, self.replies, self.log):
            if fd >= 0:
                os.close(fd)
        os.close(self._pidfd)
        waited = self._host.reap(self._pid) if clean else None
        clean = group.kill() and clean
        usage = replace(self._usage(waited, wait_s), lost=lost)
        self._host.give_back(self._slot, clean)
        return usage

    def _ended_early(self) -> bool:
        """Whether nobody inside can answer any more although nobody told it to end."""
        poll = select.poll()
        poll.register(self.replies, 0)
        return self.requests >= 0 and bool(poll.poll(0))

    def _spawner_gone(self, grace_s: float) -> bool:
        """Whether the jail lost its spawner; the jail may end a few milliseconds before that shows."""
        end = time.monotonic() + grace_s
        while self._host.spawner_lives(self._spawner):
            if time.monotonic() >= end:
                return False
            time.sleep(0.002)
        return True

    def _end(self) -> bool:
        """Kill the inner process first: bubblewrap then reaps it (no zombie, its CPU time is known) and ends itself."""
        inner = self._inner()
        if inner is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(inner, signal.SIGKILL)
            if select.select([self._pidfd], [], [], 1.0)[0]:
                return True
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        return bool(select.select([self._pidfd], [], [], 5.0)[0])

    def _usage(self, waited: float | None, host_wait_s: float | None) -> Usage:
        group = self._slot.group
        try:
            now = group.counters()
        except JailFault:
            now = None
        if now is None or self._before is None:
            return Usage(cpu_s=waited, host_wait_s=host_wait_s)
        return Usage(
            cpu_s=now.cpu_s - self._before.cpu_s,
            memory_bytes=group.peak(),
            oom_kills=now.oom_kills - self._before.oom_kills,
            pids_denied=now.pids_denied - self._before.pids_denied,
            host_wait_s=host_wait_s,
        )


class JailHost:
    """The bubblewrap backend. Thread-safe; `close` ends every jail."""

    name = "bubblewrap"

    def __init__(self, slots: int, instance: Instance | None = None) -> None:
        """Stage the interpreter, take an instance number, sweep leftovers, start the spawner. Raises UserError."""
        if not 1 <= slots <= SLOTS:
            raise UserError(f"{slots} sandbox slots are wanted, at most {SLOTS} are possible", do="lower the setting")
        self._bwrap = find_bwrap()
        self.root = tree.staged()
        self.instance = instance or Instance()
        self.layout = cgroup.detect()
        self.swept = self.instance.sweep(self.layout)
        self._lock = threading.Lock()
        self._free = [self._slot(number) for number in range(slots)]
        self._retired = 0
        self._closed = False
        self._start_spawner()

    def _slot(self, number: int) -> Slot:
        name = f"{self.instance.label}-{number}"
        return Slot(number, self.instance.uid(number), cgroup.Group(self.layout, name))

    def _start_spawner(self) -> None:
        filter_path = self.instance.file("filter.bpf")
        filter_path.write_bytes(seccomp.program())
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        script = Path(__file__).with_name("spawner.py")
        python = str(getattr(sys, "_base_executable", sys.executable))
        self._process = subprocess.Popen(
            [python, "-I", "-S", "-B", str(script), str(filter_path)], stdin=theirs.fileno()
        )
        theirs.close()
        ours.settimeout(_BOOT_S)
        self._channel = ours

    def _respawn(self) -> None:
        """Its jails died with it; whoever used them sees their pipes end."""
        if self._closed:
            return
        self._channel.close()
        self._process.kill()
        self._process.wait()
        self._start_spawner()

    @property
    def spawner_pid(self) -> int:
        """Process id of the spawner, whose accounting holds the CPU time of all ended jails."""
        return self._process.pid

    def spawner_lives(self, pid: int) -> bool:
        """Whether this spawner is there: its jails die with it."""
        with self._lock:
            if pid != self._process.pid:
                return False
            poll = select.poll()
            poll.register(self._channel, 0)  # hang-ups are always told
            return self._process.poll() is None and not poll.poll(0)

    @property
    def free(self) -> int:
        """How many slots have no jail."""
        with self._lock:
            return len(self._free)

    @property
    def retired(self) -> int:
        """How many slots could not be cleaned and are out of use."""
        return self._retired

    @property
    def label(self) -> str:
        """Names everything that belongs to this owner on its machine."""
        return self.instance.label

    @property
    def counts_processes(self) -> bool:
        """Whether the kernel bounds and counts processes per jail."""
        return bool(self.layout.version)

    def check(self) -> None:
        """Run the escape self-test. Raises UserError."""
        from services.runtime.jail import selftest

        selftest.check(self)

    def launch(self, limits: Limits, options: Options = PLAIN) -> BubblewrapJail:
        """Start a jail; its worker says nothing before it is asked. Raises JailFault."""
        del options
        with self._lock:
            if not self._free:
                raise JailFault("no free sandbox slot")
            slot = self._free.pop(0)  # the one unused for longest: a repeat after a fault gets another slot
        ends: list[int] = []
        try:
            if slot.limits != limits:
                slot.group.create()
                slot.group.limit(limits)
                slot.limits = limits
            slot.group.peak(reset=True)
            before = slot.group.counters()
            request_r, request_w = os.pipe()
            ends += [request_r, request_w]
            reply_r, reply_w = os.pipe()
            ends += [reply_r, reply_w]
            log_r, log_w = os.pipe()
            ends += [log_r, log_w]
            for fd in (request_w, reply_r, log_r):
                os.set_blocking(fd, False)
            answer, fds = self._ask(self._request(slot, limits), [request_r, reply_w, log_w])
        except (OSError, JailFault) as error:
            for fd in ends:
                os.close(fd)
            self.give_back(slot, slot.group.kill())
            raise JailFault(f"a sandbox did not start: {error}") from error
        for fd in (request_r, reply_w, log_w):
            os.close(fd)
        return BubblewrapJail(self, slot, (int(answer["pid"]), fds[0]), (request_w, reply_r, log_r), before)

    def _request(self, slot: Slot, limits: Limits) -> dict[str, object]:
        rlimits = [
            (resource.RLIMIT_NOFILE, limits.files),
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_FSIZE, limits.file_bytes),
            (resource.RLIMIT_CPU, limits.cpu_s),
        ]
        if slot.group.version == 0:
            rlimits.append((resource.RLIMIT_AS, limits.memory_bytes))
        return {
            "label": self.instance.label,
            "argv": bwrap_arguments(self._bwrap, self.root, limits),
            "uid": slot.uid,
            "join": slot.group.join_paths,
            "rlimits": rlimits,
        }

    def _ask(self, request: dict[str, object], fds: list[int]) -> tuple[dict[str, Any], list[int]]:
        with self._lock:
            try:
                self._channel.sendmsg(
                    [json.dumps(request).encode()],
                    [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [],
                )
                data, ancillary, _, _ = self._channel.recvmsg(4096, socket.CMSG_SPACE(4))
            except OSError:
                data, ancillary = b"", []
            if not data:
                self._respawn()
                raise JailFault("the spawner was gone and was started again")
        passed = array.array("i")
        for _, _, raw in ancillary:
            passed.frombytes(raw)
        answer = json.loads(data)
        if "error" in answer:
            raise JailFault(answer["error"])
        return answer, list(passed)

    def reap(self, pid: int) -> float | None:
        """CPU seconds of an ended jail as its bubblewrap was charged; None when not known."""
        try:
            answer, _ = self._ask({"wait": pid}, [])
        except JailFault:
            return None
        value = answer.get("cpu_s")
        return value if isinstance(value, float) else None

    def give_back(self, slot: Slot, clean: bool) -> None:
        """A slot is free again; one that is not clean stays out of use until the service starts again."""
        with self._lock:
            if clean:
                self._free.append(slot)
            else:
                self._retired += 1

    def close(self) -> None:
        """End the spawner (every jail dies with it), remove the control groups, free the instance number."""
        with self._lock:
            self._closed = True
        self._channel.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.instance.sweep_own(self.layout)
        self.instance.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
