"""A run folder is a place: with any name, moved, copied, somebody else's; and one process at a time runs it."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from infra.local.rundir import LONGEST, RunDir
from infra.local.stack import Stack, readable, serving
from services.runtime.errors import UserError
from services.runtime.settings import dump_toml, load
from services.runtime.store import open_store

NAMES = (
    "try#1", "try#2", "try", "a%20b", "a b", "a?x=1", "a", "quote's \"x\"", "new\nline", "tab\tand\x7f",
    "naïve-日本-\u202e",
    "[b]bold[bb]", "-dash", "back\\slash", "a;b&c|d$e`f", "~", "s3:", "d" * 200,
)  # fmt: skip


def made(root: Path, **sections) -> RunDir:
    """A run folder as the preparation makes it, with one object in its store."""
    run = RunDir(root)
    settings = load(None, **sections)
    if not settings.store.url:
        settings = settings.model_copy(
            update={"store": settings.store.model_copy(update={"url": f"file://{run.store}"})}
        )
    with run.claimed():
        run.create(settings)
        open_store(run.settings().store).put("runs/name", os.fsencode(root.name))
    return run


def name_of(run: RunDir) -> bytes:
    """What `made` stored; asked as the looks ask, and as the services do."""
    found = [open_store(settings.store).get("runs/name") for settings in (run.settings(), load(run.config))]
    assert found[0] == found[1]
    return found[0]


def everything(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def holder(root: Path) -> subprocess.Popen[str]:
    """Another process that has claimed the folder."""
    code = (
        "import sys, time; from pathlib import Path; from infra.local.rundir import RunDir\n"
        "with RunDir(Path(sys.argv[1])).claimed(): print('mine', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(root)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "mine\n"
    return process


def test_every_name_is_a_place_of_its_own(tmp_path):
    runs = [made(tmp_path / name) for name in NAMES]
    assert [name_of(run) for run in runs] == [os.fsencode(name) for name in NAMES]
    assert sorted(os.listdir(tmp_path)) == sorted(NAMES)


def test_a_relative_folder_and_one_behind_a_link_are_the_same_place(tmp_path, monkeypatch):
    made(tmp_path / "real")
    (tmp_path / "link").symlink_to("real")
    monkeypatch.chdir(tmp_path)
    for path in ("real", "./real", "link", "link/../real"):
        assert name_of(RunDir(Path(path))) == b"real"
    with (
        RunDir(Path("link")).claimed(),
        pytest.raises(UserError, match="running already"),
        RunDir(Path("real")).claimed(),
    ):
        pass


@pytest.mark.parametrize("move", [shutil.copytree, shutil.move], ids=["copied", "moved"])
def test_a_folder_that_was_moved_or_copied_has_its_own_store(move, tmp_path):
    first = made(tmp_path / "first #1")
    move(first.root, tmp_path / "second")
    second = RunDir(tmp_path / "second")
    assert name_of(second) == b"first #1"
    with second.claimed():
        store = open_store(second.settings().store)
        store.put("runs/name", b"second")
        store.delete("runs/other")
    assert name_of(second) == b"second"
    assert not first.exists() or name_of(first) == b"first #1"
    assert str(first.root) not in "".join(p.read_text() for p in (second.config, second.root / "README.md"))


def test_a_folder_from_before_follows_too(tmp_path):
    """Its file names its store by the place where the folder was when it was made."""
    first = made(tmp_path / "first")
    (first.root / "lock").unlink()
    settings = first.settings()
    first.config.write_text(dump_toml(settings.model_copy(update={"run_dir": f"{tmp_path.name}/first"})))
    shutil.copytree(first.root, tmp_path / "second")
    second = RunDir(tmp_path / "second")
    open_store(second.settings().store).put("runs/name", b"second")
    with second.claimed():
        second.renew()
    assert name_of(second) == b"second"
    assert name_of(first) == b"first"


@pytest.mark.parametrize("shared", ["store", "kafka"])
def test_a_copy_that_would_write_into_the_originals_places_is_refused(shared, tmp_path):
    section = {"store": {"url": f"file://{tmp_path}/elsewhere"}, "kafka": {"bootstrap": "kafka:9092"}}[shared]
    first = made(tmp_path / "first", **{shared: section})
    shutil.copytree(first.root, tmp_path / "second")
    before = everything(tmp_path)
    with pytest.raises(UserError, match="is a copy of"), RunDir(tmp_path / "second").claimed():
        pass
    assert everything(tmp_path) == before
    with first.claimed():
        pass
    shutil.move(first.root, tmp_path / "third")
    with RunDir(tmp_path / "third").claimed():
        pass
    shutil.rmtree(tmp_path / "third")
    with RunDir(tmp_path / "second").claimed():
        pass


def test_a_copy_does_not_take_the_port_at_which_the_originals_clients_look(tmp_path):
    first = made(tmp_path / "first")
    (first.root / "port").write_text("12345")
    shutil.copytree(first.root, tmp_path / "second")
    for name, kept in (("second", False), ("first", True)):
        run = RunDir(tmp_path / name)
        with run.claimed():
            assert (run.root / "port").exists() == kept
    identities = {json.loads((tmp_path / name / "lock").read_text())["id"] for name in ("first", "second")}
    assert len(identities) == 2


def test_a_copy_by_hard_links_is_refused(tmp_path):
    first = made(tmp_path / "first")
    shutil.copytree(first.root, tmp_path / "second", copy_function=os.link)
    with pytest.raises(UserError, match="hard links"), RunDir(tmp_path / "second").claimed():
        pass


@pytest.mark.parametrize("theirs", ["README.md", "run.toml", "notes/a.txt", "lock", "versions.json"])
def test_somebody_elses_folder_is_refused_and_stays_as_it_is(theirs, tmp_path):
    path = tmp_path / "home" / theirs
    path.parent.mkdir(parents=True)
    path.write_text("seed = 3\n")
    with pytest.raises(UserError, match="is not empty"), RunDir(tmp_path / "home").claimed():
        pass
    assert everything(tmp_path) == {f"home/{theirs}": b"seed = 3\n"}


def test_what_a_person_wrote_into_a_run_folder_stays(tmp_path):
    run = made(tmp_path / "run")
    (run.root / "README.md").write_text("my notes")
    with run.claimed():
        run.create(run.settings())
    assert (run.root / "README.md").read_text() == "my notes"


def test_a_place_where_no_run_can_be_is_refused_and_nothing_is_left(tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "nowhere").symlink_to("absent")
    deep = tmp_path.joinpath(*["d" * 250] * (LONGEST // 250 + 1))
    before = sorted(os.listdir(tmp_path))
    for root in ("file", "file/run", "loop", "loop/run", "nowhere", "n" * 256, "nul\0", os.fsdecode(b"not \xff utf-8")):
        with pytest.raises(UserError), RunDir(tmp_path / root).claimed():
            pass
    with pytest.raises(UserError, match="longer than"), RunDir(deep).claimed():
        pass
    with pytest.raises(ZeroDivisionError), RunDir(tmp_path / "a" / "b").claimed():
        raise ZeroDivisionError
    assert sorted(os.listdir(tmp_path)) == before


def test_a_long_path_is_a_place_too(tmp_path):
    """Beyond the 108 bytes of a socket's name."""
    long = tmp_path.joinpath(*["d" * 250] * ((LONGEST - len(str(tmp_path))) // 251))
    run = made(long)
    assert name_of(run) == b"d" * 250
    with readable_broker(run) as bootstrap:
        assert bootstrap


def readable_broker(run: RunDir):
    with serving(run, run.settings()):
        pass
    return readable(run)


def test_who_runs_it_is_known_by_a_lock_that_dies_with_its_holder(tmp_path):
    run = made(tmp_path / "run")
    process = holder(run.root)
    try:
        assert run.held()
        run.write_stack("127.0.0.1:1")
        assert run.live_bootstrap() == "127.0.0.1:1"
        before = everything(run.root)
        with pytest.raises(UserError, match=f"running already.*pid {process.pid}"), run.claimed():
            pass
        assert everything(run.root) == before, "the refused one left everything, the other's stack.json too"
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert not run.held()
    assert run.live_bootstrap() is None
    with run.claimed():
        assert not run.stack.exists()


def test_a_number_that_came_again_is_nobody(tmp_path):
    """As in a container, where the process that was killed and the one that looks are both number 1."""
    run = made(tmp_path / "run")
    run.stack.write_text(json.dumps({"pid": os.getpid(), "bootstrap": "127.0.0.1:1"}))
    assert run.live_bootstrap() is None
    with run.claimed():
        pass


def test_while_it_is_prepared_nobody_serves_its_log(tmp_path):
    run = made(tmp_path / "run")
    (run.broker / "something").mkdir()
    process = holder(run.root)
    try:
        with pytest.raises(UserError, match="starting or ending"), readable(run):
            pass
    finally:
        process.kill()
        process.communicate()


def test_a_stack_that_never_came_up_leaves_the_others_address(tmp_path):
    run = made(tmp_path / "run")
    with run.claimed():
        run.write_stack("127.0.0.1:1")
        Stack(run, run.settings()).close()
        assert run.live_bootstrap() == "127.0.0.1:1"
