"""The bubblewrap backend: a `JailHost` per service owns spawner, slots and the staged interpreter of its jails."""

from __future__ import annotations

import array
import contextlib
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from services.runtime.errors import UserError
from services.runtime.jail import cgroup, seccomp, tree
from services.runtime.jail.backend import PLAIN, Evidence, Options, Runtime
from services.runtime.jail.bubblewrap import (
    bwrap_arguments,
    can_disable_namespaces,
    environment,
    find_bwrap,
    rlimits,
)
from services.runtime.jail.fixtures import Fixtures
from services.runtime.jail.instance import SLOTS, Instance
from services.runtime.jail.limits import JailFault, Limits
from services.runtime.jail.network import Proxies
from services.runtime.jail.running import BubblewrapJail, Slot
from services.runtime.jail.sampled import Watch, can_sample
from services.runtime.jail.surroundings import Surroundings

_BOOT_S = 15.0


class JailHost:
    """The bubblewrap backend. Thread-safe; `close` ends every jail."""

    name = "bubblewrap"

    def __init__(self, slots: int, instance: Instance | None = None) -> None:
        """Stage the interpreter, take an instance number, sweep leftovers, start the spawner. Raises UserError."""
        if not 1 <= slots <= SLOTS:
            raise UserError(f"{slots} sandbox slots are wanted, at most {SLOTS} are possible", do="lower the setting")
        self._bwrap = find_bwrap()
        self._disable_namespaces = can_disable_namespaces()
        self._roots: dict[Runtime, tuple[int, Path]] = {}
        self._filters: dict[bool, str] = {}
        self.instance = instance or Instance()
        self.layout = cgroup.detect()
        self.surroundings = Surroundings()
        self._sampled = self.layout.version == 0 and can_sample()
        cache = self._cache = tree.cache_folder()
        self.swept = self.instance.sweep(self.layout, cache)
        tree.sweep()
        self._lock = threading.Lock()
        self._staging = threading.Lock()
        self._free = [self._slot(number) for number in range(slots)]
        self._retired = 0
        self._closed = False
        self._stage_at = cache / "stage"  # an empty folder; each jail mounts over it in a namespace of its own
        self._memory_at = cache / "memory"  # another, over which the spawner mounts the interpreter's copy
        with tree.explained(cache):
            for folder in (self._stage_at, self._memory_at):
                folder.mkdir(exist_ok=True)
                folder.chmod(0o755)
            self.fixtures = Fixtures(self.instance.trees(cache))
        self.proxies = Proxies(self.instance.file)
        self._start_spawner()
        self.watch = Watch()
        # Only root may mount. Elsewhere bubblewrap's own tmpfs serves, and fixtures go through the pipe.
        self.private_mounts = os.geteuid() == 0 and self._can_stage(None)
        self.own_roots = self.private_mounts and self._can_stage(None, self._root_of("plain"))
        self.shows_files = self.private_mounts and self._can_stage(self.fixtures.folder)

    def _can_stage(self, lower: Path | None, root: Path | None = None) -> bool:
        answer, _ = self._ask({"probe": self._stage(Limits(), root, lower)}, [])
        return bool(answer["possible"])

    def _stage(
        self, limits: Limits, root: Path | None, lower: Path | None, proxy: Path | None = None
    ) -> dict[str, object]:
        return {
            "root": None if root is None else str(root),
            "at": str(self._stage_at),
            "bytes": limits.tmp_bytes,
            "inodes": limits.tmp_inodes,
            "lower": None if lower is None else str(lower),
            "proxy": None if proxy is None else str(proxy),
        }

    def _root_of(self, runtime: Runtime) -> Path:
        """This owner's own copy of the staged tree, made when first asked for: no service shares an inode with another.

        In memory of the spawner's where it may mount, else on disk. Raises UserError.
        """
        with self._staging:
            owner, root = self._roots.get(runtime, (0, Path()))
            if owner and (owner == self.spawner_pid or root.is_relative_to(self.instance.copies(self._cache))):
                return root
            source = tree.staged(runtime)
            with contextlib.suppress(JailFault):  # no memory is left, or no right to use it so
                if self.private_mounts:
                    answer, _ = self._ask({"copy": str(source), "at": str(self._memory_at)}, [])
                    self._roots[runtime] = int(answer["owner"]), Path(answer["at"])
                    return self._roots[runtime][1]
            root = tree.copied(runtime, self.instance.copies(self._cache))
            self._roots[runtime] = self.spawner_pid, root
            return root

    def _filter(self, network: bool) -> str:
        with self._staging:
            if network not in self._filters:
                path = self.instance.file("network.bpf" if network else "plain.bpf")
                with tree.explained(path.parent):
                    path.write_bytes(seccomp.program(network))
                self._filters[network] = str(path)
            return self._filters[network]

    def _slot(self, number: int) -> Slot:
        name = f"{self.instance.label}-{number}"
        return Slot(number, self.instance.uid(number), cgroup.Group(self.layout, name))

    def _start_spawner(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        script = Path(__file__).with_name("spawner.py")
        python = str(getattr(sys, "_base_executable", sys.executable))
        self._process = subprocess.Popen([python, "-I", "-S", "-B", str(script)], stdin=theirs.fileno())
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

    @property
    def evidence(self) -> Evidence:
        """What a run's end can be attributed by."""
        return "cgroup" if self.layout.version else "sampled" if self._sampled else "rlimit"

    @property
    def weaknesses(self) -> tuple[str, ...]:
        """What else is merely absent here, one stable word each: none of it lets anything out."""
        found = {
            "one_user": os.geteuid() != 0,
            "no_inode_limit": not self.private_mounts,
            "one_library": not self.own_roots,
            "no_memory_kill_count": not self.layout.version and self.surroundings.kills() is None,
            "namespaces_by_filter": not self._disable_namespaces,
        }
        return tuple(word for word, absent in found.items() if absent)

    def distrust_samples(self) -> None:
        """The self-test saw that the watch does not see what it must: nothing is attributed by it."""
        self._sampled = False

    def check(self) -> None:
        """Run the escape self-test. Raises UserError."""
        from services.runtime.jail import selftest

        selftest.check(self)

    def launch(self, limits: Limits, options: Options = PLAIN) -> BubblewrapJail:
        """Start a jail; its worker says nothing before it is asked. Raises JailFault."""
        if options.files and not self.shows_files:
            raise JailFault("this host cannot show files in a sandbox; send them through the pipe")
        if options.hosts and not self.private_mounts and os.geteuid() == 0:
            raise JailFault("this host cannot show a proxy's socket in a sandbox, so no hosts can be reached")
        try:
            env, root = environment(options.hash_seed), self._root_of(options.runtime)
            filtered = self._filter(options.runtime == "network")
            proxy = self.proxies.socket(options.hosts) if options.hosts else None
        except (ValueError, UserError) as error:
            raise JailFault(str(error)) from error
        shown, lower = self.fixtures.show(options.files, options.files_digest) if options.files else (None, None)
        try:
            request: dict[str, object] = {
                "label": self.instance.label,
                "argv": self._arguments(root, limits, proxy),
                "env": env,
                "seccomp": filtered,
                "stage": self._stage(limits, root if self.own_roots else None, lower, proxy)
                if self.private_mounts
                else None,
                "expendable": not self.counts_processes,
            }
            return self._start(limits, request, shown)
        except JailFault:
            if shown is not None:
                self.fixtures.leave(shown)
            raise

    def _arguments(self, root: Path, limits: Limits, proxy: Path | None) -> list[str]:
        if not self.private_mounts:
            return bwrap_arguments(self._bwrap, root, limits, None, proxy, self._disable_namespaces)
        at, seen = self._stage_at, self._stage_at / "proxy" if proxy is not None else None
        root = at / "root" if self.own_roots else root
        return bwrap_arguments(self._bwrap, root, limits, at / "top", seen, self._disable_namespaces)

    def _start(self, limits: Limits, request: dict[str, object], shown: str | None) -> BubblewrapJail:
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
            before, outer_kills = slot.group.counters(), None if self.counts_processes else self.surroundings.kills()
            request["uid"], request["join"] = slot.uid, slot.group.join_paths
            request["rlimits"] = rlimits(limits, slot.uid != 0, slot.group.version != 0)
            request_r, request_w = os.pipe()
            ends += [request_r, request_w]
            reply_r, reply_w = os.pipe()
            ends += [reply_r, reply_w]
            log_r, log_w = os.pipe()
            ends += [log_r, log_w]
            for fd in (request_w, reply_r, log_r):
                os.set_blocking(fd, False)
            answer, fds = self._ask(request, [request_r, reply_w, log_w])
        except (OSError, JailFault) as error:
            for fd in ends:
                os.close(fd)
            self.give_back(slot, slot.group.kill())
            raise JailFault(f"a sandbox did not start: {error}") from error
        for fd in (request_r, reply_w, log_w):
            os.close(fd)
        pid, pidfd = int(answer["pid"]), fds[0]
        watched = self.watch.add(pid, pidfd, limits) if self._sampled else None
        pipes = (request_w, reply_r, log_r)
        return BubblewrapJail(self, slot, (pid, pidfd), pipes, before, shown, watched, outer_kills)

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

    def reap(self, pid: int) -> tuple[float | None, bool | None]:
        """CPU seconds of an ended jail as its bubblewrap was charged, and whether its process 1 seems to have been
        killed; None when not known."""
        try:
            answer, _ = self._ask({"wait": pid}, [])
        except JailFault:
            return None, None
        value, status = answer.get("cpu_s"), answer.get("status")
        # Bubblewrap tells a process 1 that was ended by a signal as 128 + signal, as a shell does; killed itself, -9.
        return value if isinstance(value, float) else None, None if status is None else status in (-9, 128 + 9)

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
        self.watch.close()
        self._channel.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.instance.sweep_own(self.layout)
        self.proxies.close()
        self.fixtures.close()
        shutil.rmtree(self.instance.copies(self._cache), ignore_errors=True)
        self.instance.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
