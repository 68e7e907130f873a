"""Whoever dies, the owner or what keeps its jails alive: nothing stays behind, nothing is blamed on the candidate."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from services.runtime.errors import UserError
from services.runtime.jail.backend import Backend, open_backend
from services.runtime.jail.cgroup import Layout, own_groups
from services.runtime.jail.docker import host as docker_host
from services.runtime.jail.docker.host import DockerHost
from services.runtime.jail.launcher import JailHost
from services.runtime.jail.limits import MIB, JailFault, Limits
from services.runtime.settings import Isolation
from services.verifier.attribution import Facts, attribute
from tests.contract.sandbox.asking import ask, begin
from tests.services.docker_engine import ROOT, Engine, private_engine

OWNER = """
import json, sys, time
from services.runtime.jail.backend import open_backend
from services.runtime.settings import Isolation
from tests.contract.sandbox.asking import begin
backend = open_backend(Isolation(**json.loads(sys.argv[1])), 4)
source = '''
import os, time
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        time.sleep(600)
time.sleep(0.1)
'''
jails = [begin(backend, source) for _ in range(3)]
members = sorted(set().union(*[jail.members() for jail in jails]))
print(json.dumps({"label": backend.label, "members": members}), flush=True)
time.sleep(600)
"""


def _born(pid: int) -> str:
    """When the process started, in ticks since boot; empty once it is gone (a zombie is)."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return "" if fields[0] == "Z" else fields[19]
    return ""


def _groups(pids: Iterable[int], label: str) -> dict[str, int]:
    """Control groups named after the label that these processes are in, under every hierarchy, with their inodes."""
    found = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            for key, path in own_groups(Path(f"/proc/{pid}/cgroup").read_text()).items():
                parts = path.strip("/").split("/")
                depth = next((n for n, part in enumerate(parts, 1) if part.startswith(f"{label}-")), 0)
                for root in ("/sys/fs/cgroup", f"/sys/fs/cgroup/{key}"):
                    at = "/".join([root, *parts[:depth]])
                    if depth and os.path.isdir(at):
                        found[at] = os.stat(at).st_ino
    return found


def _there(groups: dict[str, int]) -> list[str]:
    """Those that still are what they were; another owner on this machine may have made new ones of the same name."""
    found = []
    for at, inode in groups.items():
        with contextlib.suppress(OSError):
            if os.stat(at).st_ino == inode:
                found.append(at)
    return found


@contextlib.contextmanager
def _client(url: str) -> Iterator[Any]:
    from docker import APIClient

    api = APIClient(base_url=url, version="auto")
    try:
        yield api
    finally:
        api.close()


def _containers(url: str, label: str) -> dict[str, str]:
    """Containers of one owner with where their root is mounted."""
    with _client(url) as api:
        found = {}
        for container in api.containers(all=True, filters={"label": "rollstream.jail"}):
            if container["Labels"]["rollstream.jail"].startswith(f"{label}@"):
                data = api.inspect_container(container["Id"])["GraphDriver"]["Data"] or {}
                found[container["Id"]] = data.get("MergedDir", "")
        return found


def _mounts() -> set[str]:
    return {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}


def test_kill_9_of_the_owner_leaves_nothing_once_another_has_started(isolation: Isolation) -> None:
    before = {at for at in _mounts() if "rollstream" in at}
    url = isolation.docker_url
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, isolation.model_dump_json()], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert owner.stdout is not None
        told = json.loads(owner.stdout.readline())
        born = {pid: _born(pid) for pid in told["members"]}
        groups = _groups(born, told["label"])
        containers = _containers(url, told["label"]) if url else {}
        if os.geteuid() == 0:
            assert len(born) >= 12
            assert all(born.values())
            assert len(groups) >= 3
        if url:
            assert len(containers) == 3
            assert set(containers.values()) <= _mounts()
    finally:
        owner.kill()
        owner.wait()
    with open_backend(isolation, 2) as after:
        end = time.monotonic() + 30
        while any(then and _born(pid) == then for pid, then in born.items()) and time.monotonic() < end:
            time.sleep(0.02)
        assert [pid for pid, then in born.items() if then and _born(pid) == then] == []
        assert ask(after, "def f(): return 1").value == 1
        if after.label != told["label"]:
            assert _there(groups) == []
    assert _there(groups) == []
    assert {at for at in _mounts() if "rollstream" in at} == before
    if url:
        with _client(url) as api:
            left = {container["Id"] for container in api.containers(all=True)}
            assert api.volumes()["Volumes"] in (None, [])
        assert left.isdisjoint(containers)
        assert _mounts().isdisjoint(containers.values())


def test_the_running_jails_of_a_living_owner_are_left_alone(isolation: Isolation, backend: Backend) -> None:
    jail = begin(backend, "")
    try:
        before = jail.members()  # type: ignore[attr-defined]  # both kinds of jail tell their host process ids
        with open_backend(isolation, 1) as other:
            assert other.label != backend.label
            assert ask(other, "def f(): return 1").value == 1
        assert jail.members() == before  # type: ignore[attr-defined]  # as above
    finally:
        jail.close()


def test_a_slot_that_is_taken_is_not_given_again(isolation: Isolation) -> None:
    with open_backend(isolation, 1) as one:
        jail = begin(one, "")
        assert one.free == 0
        with pytest.raises(JailFault, match="no free sandbox slot"):
            one.launch(Limits())
        jail.close()
        assert (one.free, one.retired) == (1, 0)
        assert ask(one, "def f(): return 1").value == 1


def test_the_self_test_passes(backend: Backend) -> None:
    backend.check()


def test_a_missing_program_of_bubblewrap_is_infrastructure(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    if not isinstance(backend, JailHost):
        pytest.skip("about bubblewrap")
    monkeypatch.setattr(backend, "_bwrap", "/nonexistent/bwrap")
    with pytest.raises(JailFault):
        ask(backend, "def f(): return 1")
    monkeypatch.undo()
    assert ask(backend, "def f(): return 1").value == 1


def test_gvisor_holds_as_well(docker_engine: str) -> None:
    if shutil.which("runsc") is None:
        pytest.skip("gVisor is not installed: apt-get install runsc")
    with open_backend(Isolation(backend="docker", docker_url=docker_engine, docker_runtime="runsc"), 2) as host:
        host.check()
        threads = "import threading\ndef f():\n    threading.Thread(target=int).start()\n    return 'ran'"
        assert ask(host, threads).value == "ran"
    with pytest.raises(UserError, match="no runtime 'absent'"):
        open_backend(Isolation(backend="docker", docker_url=docker_engine, docker_runtime="absent"), 2)


def test_without_groups_of_its_own_the_engine_tells_what_it_knows(
    docker_engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(docker_host, "detect", lambda info, local: Layout(0, {}))
    with open_backend(Isolation(backend="docker", docker_url=docker_engine), 2) as host:
        asked = ask(host, "def f(): return 1")
        assert (asked.value, asked.usage.oom_kills, asked.usage.pids_denied) == (1, None, None)
        bomb = "import os\nif os.fork() == 0:\n    b'x' * (256 << 20)\n    os._exit(0)\nos.wait()\n"
        usage = begin(host, bomb, Limits(memory_bytes=64 * MIB)).close()
        if os.geteuid() == 0:  # it still ran, so that its own group could be read
            assert usage.oom_kills == 1
            assert usage.cpu_s is not None


def test_an_engine_that_does_not_answer_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not answer") as caught:
        open_backend(Isolation(backend="docker", docker_url=f"unix://{tmp_path}/none"), 1)
    assert f"{tmp_path}/none" in str(caught.value)
    with pytest.raises(UserError, match="unix://"):
        open_backend(Isolation(backend="docker", docker_url="ssh://somewhere"), 1)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Engine, DockerHost]]:
    """An engine that may be broken, and an owner on it."""
    folder = tmp_path_factory.mktemp("own") / "e"
    with (
        private_engine(folder) as engine,
        DockerHost(Isolation(backend="docker", docker_url=engine.url), 2) as host,
    ):
        yield engine, host


def _facts(host: DockerHost, during: Any) -> Facts:
    """What a check run records when the candidate's process ends right after `during`."""
    from services.runtime.jail.session import Closed, Conversation, Pace, Program

    jail = host.launch(Limits())
    asked = Conversation(jail, Limits(), Pace(8.0, 8.0, 60.0, 60.0, 60.0))
    try:
        assert asked.start(Program({"m.py": "import time\ndef f(): time.sleep(600)\n"}, "m", "f"))
        during(jail)
        with pytest.raises(Closed):
            asked.call()
    finally:
        usage = jail.close()
    seen = asked.transcript
    return Facts(booted=seen.booted, ready=seen.ready, ending=seen.ending, wanted=1, usage=usage)


def test_a_container_that_somebody_killed_is_infrastructure(own: tuple[Engine, DockerHost]) -> None:
    engine, host = own
    with _client(engine.url) as api:
        facts = _facts(host, lambda jail: api.kill(jail.container))
        assert attribute(facts) == ("infra", "jail_lost")
        facts = _facts(host, lambda jail: api.remove_container(jail.container, force=True))
        assert attribute(facts) == ("infra", "jail_lost")
    assert (host.free, host.retired) == (2, 0)


@pytest.mark.long
def test_an_image_that_went_away_is_made_again(own: tuple[Engine, DockerHost]) -> None:
    engine, host = own
    with _client(engine.url) as api:
        api.remove_image(host.image("plain").name, force=True)
    assert ask(host, "def f(): return 1").value == 1


def test_a_dead_engine_is_infrastructure_and_its_slots_come_back(own: tuple[Engine, DockerHost]) -> None:
    engine, host = own
    facts = _facts(host, lambda jail: engine.kill())
    assert attribute(facts) == ("infra", "jail_lost")
    assert host.retired == 1
    with pytest.raises(JailFault):
        ask(host, "def f(): return 1")
    engine.start()
    assert ask(host, "def f(): return 1").value == 1
    assert (host.free, host.retired) == (2, 0)
    assert _containers(engine.url, host.label) == {}
