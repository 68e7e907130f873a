"""The watch over jails without control groups sees what processes use together, and ends a jail that uses too much."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from services.runtime.jail import cgroup, diagnosis, instance, sampled
from services.runtime.jail.instance import labelled
from services.runtime.jail.launcher import JailHost
from services.runtime.jail.limits import MIB, Limits
from services.runtime.jail.running import BubblewrapJail

BUSY = """
import os, sys, time
kept = bytearray(30 << 20)
for _ in range(2):
    if os.fork() == 0:
        mine = bytearray(20 << 20)
        print("up", flush=True)
        time.sleep(60)
end = time.process_time() + 0.3
while time.process_time() < end: pass
print("up", flush=True)
time.sleep(60)
"""


@contextmanager
def process(source: str) -> Iterator[subprocess.Popen[str]]:
    line = [sys.executable, "-I", "-S", "-c", source]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True, start_new_session=True) as running:
        try:
            yield running
        finally:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, 9)


def test_a_sample_holds_everything_below_a_process() -> None:
    with process(BUSY) as running:
        assert running.stdout is not None
        for _ in range(3):
            running.stdout.readline()
        found = sampled.sample(running.pid)
        assert found.processes == len(found.pids) == 3
        assert found.cpu_s >= 0.25
        resident, shared_once = found.memory_bytes, sampled.proportional(found.pids)
        assert resident >= 3 * 30 * MIB + 2 * 20 * MIB - 3 * MIB  # what was forked counts for each
        assert 70 * MIB <= shared_once <= 110 * MIB  # and once


def test_threads_count_as_the_kernel_counts_them() -> None:
    source = "import threading, time\nfor _ in range(3): threading.Thread(target=time.sleep, args=(60,)).start()\n"
    with process(source + "print('up', flush=True)\n") as running:
        assert running.stdout is not None
        running.stdout.readline()
        assert sampled.sample(running.pid).processes == 4


def test_what_is_gone_is_nothing() -> None:
    with process("pass") as running:
        running.wait()
    assert sampled.sample(running.pid) == sampled.Sample(0, 0, 0.0, ())


def test_an_ended_jail_is_never_looked_at_by_its_number() -> None:
    """The number of an outer process that has ended may belong to anybody: its children are not the jail's."""
    with process(
        "import os, time\nif os.fork() == 0: time.sleep(60)\nprint('up', flush=True)\ntime.sleep(60)\n"
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with process("pass") as ended:
            handle = os.pidfd_open(ended.pid)
            select.select([handle], [], [], 5)
            watched = sampled.Watched(other.pid, handle, Limits(memory_bytes=1, processes=1))
            watched.look()
            os.close(handle)
        assert (watched.memory_kills, watched.cpu_s()) == (0, None)
        assert sampled.sample(other.pid).processes == 2


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[JailHost]:
    monkeypatch.setattr(cgroup, "detect", lambda: cgroup.Layout(0, {}))
    with JailHost(3) as made:
        yield made


def test_idle_jails_are_looked_at_seldom_and_dropped_ones_never(
    host: JailHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[object] = []
    real = sampled.Watched.look
    monkeypatch.setattr(sampled.Watched, "look", lambda self: (looks.append(self), real(self))[1])
    jails = [host.launch(Limits()) for _ in range(3)]
    ours = set(host.watch._jails)
    time.sleep(1.0)
    before = len([one for one in looks if one in ours])
    time.sleep(1.0)
    assert len([one for one in looks if one in ours]) - before <= 3 * 1.0 / sampled._IDLE_S + 3
    for jail in jails:
        assert isinstance(jail, BubblewrapJail)
        jail.close()
    looks.clear()
    time.sleep(0.3)
    assert not ours & set(looks)


def test_every_user_sweeps_only_names_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user's instance, or root's, may have the same number: its locks are not the ones that were looked at."""
    monkeypatch.setattr(instance.os, "geteuid", lambda: 0)
    root = instance._label(3)
    monkeypatch.setattr(instance.os, "geteuid", lambda: 10001)
    assert instance._label(3) == "rollstream-jail-u10001-3" != root == "rollstream-jail-3"


def test_a_container_s_processes_are_not_this_machine_s() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make a process namespace here")
    line = ["unshare", "--pid", "--fork", "--kill-child", "bash", "-c", "exec -a rollstream-jail-77 sleep 60"]
    with (
        subprocess.Popen(["bash", "-c", "exec -a rollstream-jail-77 sleep 60"]) as here,
        subprocess.Popen(line) as there,
    ):
        try:
            deadline = time.monotonic() + 10
            while len(sampled.sample(there.pid).pids) < 2 and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(0.1)
            assert labelled("rollstream-jail-77") == [here.pid]
        finally:
            here.kill()
            there.kill()


def test_locks_go_where_they_can_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(instance.os, "geteuid", lambda: 0)
    assert instance.lock_folder(tmp_path) == tmp_path / "rollstream-jails"
    assert instance.lock_folder(tmp_path / "read-only") == Path(tempfile.gettempdir()) / "rollstream-jails-0"


def test_why_no_jail_starts_names_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    cases = {
        (1, True): "seccompProfile", (28, False): "max_user_namespaces", (87, False): "max_user_namespaces",
        (1, False): "unprivileged", (0, True): "seccompProfile", (0, False): "stock Debian",
    }  # fmt: skip
    for (refused, filtered), word in cases.items():
        monkeypatch.setattr(diagnosis, "_try_namespace", lambda refused=refused: refused)
        monkeypatch.setattr(diagnosis, "_filtered", lambda filtered=filtered: filtered)
        reason = diagnosis.no_jail("bwrap: no")
        assert word in reason.where + reason.do
        assert "bwrap: no" in reason.what
    monkeypatch.undo()
    assert diagnosis._try_namespace() == 0
