"""Temporary folders: gone at every end that a process can see, and after the others with whoever comes next."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from services.runtime import scratch
from services.runtime.scratch import Scratch, locked_file, sweep_files
from services.runtime.store_local import LocalStore

ROOT = Path(__file__).parents[3]


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty place for temporary files, for this process and those that it starts."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def owner(*arguments: object, code: str) -> subprocess.Popen[str]:
    """Another process that runs `code`, up to its first line."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "made\n"
    return process


KEEPS = (
    "from services.runtime.scratch import *; s = Scratch('x'); (s.path / 'big').touch(); print('made', flush=True)\n"
)


def test_it_is_ours_alone_and_gone_afterwards(home):
    with Scratch("mine") as folder:
        assert folder.parent == home
        assert folder.stat().st_mode & 0o777 == 0o700
        (folder / "a").mkdir()
    assert os.listdir(home) == []


@pytest.mark.parametrize("end", ["pass", "sys.exit(3)", "1 / 0", "close_all(); os._exit(0)"])
def test_no_end_of_a_process_leaves_it(end, home):
    owner(code=KEEPS + f"import os, sys\n{end}\n").communicate()
    assert os.listdir(home) == []


def test_what_a_killed_process_leaves_goes_with_the_next_one_and_a_living_ones_stays(home):
    living, killed = owner(code=KEEPS + "input()"), owner(code=KEEPS + "input()")
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    (home / "rollstream-somebody-elses").mkdir()
    assert len(os.listdir(home)) == 3
    owner(code=KEEPS).communicate()
    assert len(os.listdir(home)) == 2
    living.communicate("\n")
    assert os.listdir(home) == ["rollstream-somebody-elses"]
    assert scratch.sweep() == 0


def test_a_copy_of_the_process_removes_nothing(home):
    with Scratch("mine") as folder:
        child = os.fork()
        if child == 0:
            scratch.close_all()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert folder.is_dir()


def test_files_are_swept_by_their_locks_and_not_by_their_names(tmp_path):
    """Two containers share a store: the number of a process of the one is nobody's in the other, or somebody else's."""
    fd, mine = locked_file(tmp_path)
    (tmp_path / "1-somebodys").touch()
    sweep_files(tmp_path)
    assert mine.exists()
    os.close(fd)
    sweep_files(tmp_path)
    assert os.listdir(tmp_path) == ["1-somebodys"]


def test_another_machines_write_into_the_store_is_left_alone(tmp_path):
    """That its process has no number here says nothing: it is still writing."""
    code = (
        "import os, sys; from pathlib import Path; from services.runtime.store_local import LocalStore\n"
        "os.getpid = lambda: 2**22 + 1\n"  # as in a namespace of its own
        "store = LocalStore(Path(sys.argv[1]))\n"
        "with store._written(b'1', 'a') as path:\n"
        "    print('made', flush=True); input(); os.link(path, store._path('a'))\n"
    )
    writer = owner(tmp_path, code=code)
    LocalStore(tmp_path)
    writer.communicate("\n")
    assert writer.returncode == 0
    assert LocalStore(tmp_path).get("a") == b"1"
    assert os.listdir(tmp_path / ".incoming") == []
