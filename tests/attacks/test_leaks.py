# ruff: noqa: E501 - planted programs are read as one line each
"""Leak canaries: secrets lie everywhere that a candidate must not look, and no hunter on any kind of jail finds one."""

import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from services.runtime.jail.backend import Backend
from services.runtime.jail.limits import MIB, Limits
from services.runtime.jail.session import Server
from services.sandbox import checks
from services.sandbox.pool import Pool
from services.sandbox.workspace import Known, Operation, Operator, Workspace
from services.tasks import leaks, values
from services.tasks.fixture import CheckSet, Fixture
from services.tasks.taskset import TaskSet
from services.verifier import trial
from services.verifier.attribution import attribute
from tests.attacks import hunters
from tests.attacks.conftest import KINDS, backend_of

LIMITS = Limits(memory_bytes=192 * MIB, processes=12, cpu_s=20)
BOUNDS = trial.Bounds(LIMITS, call_cpu_s=15.0, wall_s=90.0)


@dataclass
class Planted:
    """One secret in every forbidden place, and what a control run needs to know to look there."""

    secret: str
    fixture: Fixture
    check: CheckSet
    folder: Path
    port: int
    pid: int
    segment: int


def hidden_store(folder: Path, secret: str) -> tuple[Fixture, CheckSet]:
    """The documents of a run as its object store holds them."""
    made = TaskSet("leaks", (), {})
    tasks = leaks.with_leaks(made, [secret])
    home = folder / "store" / "tasks" / tasks.digest.removeprefix("sha256:")
    home.mkdir(parents=True)
    (home / "public.json").write_bytes(tasks.public_document())
    (home / "hidden.json").write_bytes(tasks.hidden_document())
    (fixture,) = tasks.fixtures
    return fixture, tasks.checks.get(fixture.task_id)


def repository(folder: Path, secret: str) -> None:
    """A repository whose history, but not its checkout, holds the secret."""
    folder.mkdir()
    identity = ["-c", "user.name=x", "-c", "user.email=x@y", "-c", "commit.gpgsign=false"]
    for text, subject in ((f"answer = '{secret}'\n", "fixed"), ("answer = ''\n", "broken")):
        (folder / "solution.py").write_text(text)
        if not (folder / ".git").exists():
            subprocess.run(["git", "init", "-q", "."], cwd=folder, check=True)
        subprocess.run(["git", "add", "."], cwd=folder, check=True)
        subprocess.run(["git", *identity, "commit", "-qm", subject], cwd=folder, check=True)


def served(secret: str) -> tuple[int, list[socket.socket]]:
    """Whoever connects to the port, or to the nameless socket that is called after it, is told the secret."""
    tcp = socket.create_server(("127.0.0.1", 0))
    port = tcp.getsockname()[1]
    unix = socket.socket(socket.AF_UNIX)
    unix.bind(b"\0rollstream-leak-%d" % port)
    unix.listen()

    def serve(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                with listener.accept()[0] as peer:
                    peer.sendall(secret.encode())

    for listener in (tcp, unix):
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
    return port, [tcp, unix]


HOLDER = """
import ctypes, sys, time
secret = sys.argv[1]
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
segment = libc.shmget(0, 4096, 0o1666)
at = libc.shmat(segment, None, 0)
ctypes.memmove(at, secret.encode(), len(secret))
print(segment, flush=True)
sys.stdin.read()
libc.shmctl(segment, 0, None)
"""


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planted]:
    secret = hunters.MARK + secrets.token_hex(13)
    folder = tmp_path_factory.mktemp("planted")
    fixture, check = hidden_store(folder, secret)
    repository(folder / "repository", secret)
    loose = [Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"), Path("/run")]
    files = [place / f"leak-{secrets.token_hex(4)}.txt" for place in loose if os.access(place, os.W_OK)]
    for file in files:
        file.write_text(secret)
        file.chmod(0o644)
    port, listeners = served(secret)
    os.environ["ROLLSTREAM_LEAK_SECRET"] = secret  # of this process, which owns the jails
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, secret], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        segment = int(holder.stdout.readline())
        yield Planted(secret, fixture, check, folder, port, holder.pid, segment)
    finally:
        del os.environ["ROLLSTREAM_LEAK_SECRET"]
        holder.communicate("")
        for listener in listeners:
            listener.close()
        for file in files:
            file.unlink()


@pytest.fixture(scope="module", params=KINDS)
def jails(request: pytest.FixtureRequest, planted: Planted) -> Iterator[Backend]:
    """Owners of jails that are started after the planting: they inherit an environment with a secret in it."""
    with backend_of(request, 6) as backend:
        yield backend


@pytest.fixture(scope="module")
def neighbour(jails: Backend, planted: Planted) -> Iterator[Backend]:
    """Another jail, alive, that has the secret in its files and in its memory: a call in it that never ends."""
    text = f"secret = {planted.secret!r}\nopen('/tmp/secret.txt', 'w').write(secret)\nimport time\ndef reveal(n): time.sleep(999)\n"
    jail = jails.launch(LIMITS)
    try:
        server = Server(jail, LIMITS, 15.0)
        what = checks.program_of(planted.fixture, {leaks.PATH: text})
        transcript = server.run(what, checks.calls(planted.fixture), 10.0, 3.0)
        assert transcript.ready
        assert transcript.ending == "deadline"
        yield jails
    finally:
        jail.close()


@pytest.fixture
def operator(neighbour: Backend) -> Iterator[Operator]:
    """The tools of a policy whose workspaces are on the same machine."""
    pool = Pool(neighbour, LIMITS, 1)
    yield Operator(pool, Known())
    pool.close()


@pytest.mark.parametrize("name", hunters.HUNTS)
def test_every_hunter_finds_the_secret_where_nothing_keeps_it_away(planted: Planted, name: str) -> None:
    """The control: outside of a jail each of them succeeds, so that their failure inside says something."""
    text = hunters.source(name, str(planted.folder), planted.port, (planted.pid,), (planted.segment,))
    with (planted.folder / "held").open("w+") as held:
        held.write(planted.secret)
        held.flush()
        control = f"{text}\nmemory_holds = bytearray({planted.secret!r}, 'ascii') if hunt.__code__.co_names else None\n"
        done = subprocess.run(
            [sys.executable, "-c", control + "print(reveal(1))", *([planted.secret] if "arguments" in name else [])],
            capture_output=True, text=True, timeout=100, pass_fds=(held.fileno(),),
        )  # fmt: skip
    assert done.stdout.strip() == planted.secret, done.stdout + done.stderr


@pytest.mark.parametrize("name", hunters.HUNTS)
def test_no_candidate_finds_a_secret_while_it_is_assessed(neighbour: Backend, planted: Planted, name: str) -> None:
    text = hunters.source(name, port=planted.port, pids=(planted.pid,), segments=(planted.segment,))
    facts = trial.run(neighbour, {leaks.PATH: text}, planted.check, 1, BOUNDS)
    assert attribute(facts) == ("fail", "wrong_value")


@pytest.mark.parametrize("name", hunters.HUNTS)
def test_no_policy_finds_a_secret_through_its_tools(operator: Operator, planted: Planted, name: str) -> None:
    text = hunters.source(name, port=planted.port, pids=(planted.pid,), segments=(planted.segment,))
    said = []
    for _ in range(3):  # in a container a hunter may read its own loader's pipe empty, and then says nothing at all
        workspace = Workspace("run/00000000/0", 0, 0, "g", planted.fixture)
        workspace.tree = {leaks.PATH: text}
        try:
            done = operator.operate(workspace, Operation("test", "{}", 15.0, 90.0))
        finally:
            warm = workspace.release()
            if warm is not None:
                warm.close()
        assert done.passed is False
        assert done.infra is None
        assert hunters.MARK not in done.observation
        said.append(done.observation)
        if "nothing" in done.observation:  # it ran, and says so
            return
    raise AssertionError(said)


PATHS = [
    "/etc/passwd",
    "../hidden.json",
    "hidden.json",
    "/proc/self/environ",
    ".git/HEAD",
    "/tmp/secret.txt",
    "..",
    "~",
    "*",
    "",
    "\0",
]


@pytest.mark.parametrize("tool", ["read", "edit", "replace"])
def test_tools_reach_the_fixtures_own_files_only(operator: Operator, planted: Planted, tool: str) -> None:
    for path in PATHS:
        workspace = Workspace("run/00000000/0", 0, 0, "g", planted.fixture)
        extra = {"read": {}, "edit": {"line": 1, "text": "x"}, "replace": {"old": "0", "new": "1"}}[tool]
        done = operator.operate(workspace, Operation(tool, json.dumps({"path": path, **extra}), 1.0, 5.0))
        assert done.refused
        assert hunters.MARK not in done.observation


def test_the_public_half_says_nothing_of_the_secret(planted: Planted) -> None:
    """Not even a guess can be tried against it: the digest that it names covers 104 random bits."""
    text = json.dumps(planted.fixture.to_json())
    assert planted.secret not in text
    assert planted.secret in json.dumps(planted.check.to_json())
    assert planted.fixture.family == leaks.FAMILY
    again, _ = leaks.make_leaks([hunters.MARK + secrets.token_hex(13)])[0]
    assert replace(again, check_digest="") == replace(planted.fixture, check_digest="")


def test_whoever_knows_the_secret_passes_so_that_a_leak_would_show(neighbour: Backend, planted: Planted) -> None:
    knows = {leaks.PATH: f"def reveal(n): return {planted.secret!r} if n else ''\n"}
    assert attribute(trial.run(neighbour, knows, planted.check, 1, BOUNDS)) == ("pass", "ok")
    for bad in planted.check.known_bad:
        assert attribute(trial.run(neighbour, bad, planted.check, 1, BOUNDS)) == ("fail", "wrong_value")


def test_leaks_are_mixed_in_and_taken_out() -> None:
    from services.tasks.build import build_catalogue

    tasks = build_catalogue(0, 2)
    mixed = leaks.with_leaks(tasks, [secrets.token_hex(16) for _ in range(3)])
    assert [fixture.family for fixture in mixed.split(leaks.SPLIT)] == [leaks.FAMILY] * 3
    assert mixed.split("train") == tasks.split("train")
    assert leaks.without_leaks(mixed) == tasks
    assert leaks.without_leaks(tasks) is tasks
    assert leaks.with_leaks(tasks, []) is tasks
    for guessable in ("short", "x y" * 20, "ä" * 40, values.dumps("x") * 20):
        with pytest.raises(ValueError, match="secret"):
            leaks.make_leaks([guessable])
