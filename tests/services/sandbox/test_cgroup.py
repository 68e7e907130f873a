"""Control groups: where they can be made, and what is read from them.

Version 2 is decided on a folder tree that stands for its files (this tests parsing and decisions, not the kernel);
`cgroup.kill` runs on the real hierarchy wherever one is mounted.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from services.runtime.jail import cgroup
from services.runtime.jail.limits import MIB, Limits


def v2(
    root: Path,
    own: str = "/",
    controllers: str = "cpuset cpu io memory pids",
    enabled: str = "",
    processes: tuple[str, ...] = (),
) -> Path:
    """A version 2 hierarchy with one group `own` in it, and the file that names our group."""
    for folder in {root, root / own.lstrip("/")}:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup.controllers").write_text(controllers + "\n")
        (folder / "cgroup.subtree_control").write_text(enabled)
        (folder / "cgroup.procs").write_text("")
    (root / own.lstrip("/") / "cgroup.procs").write_text("\n".join(processes))
    proc = root.parent / "proc-self-cgroup"
    proc.write_text(f"0::{own}\n")
    return proc


def test_our_own_group_is_taken_where_it_can_have_groups(tmp_path: Path) -> None:
    root = tmp_path / "cgroup"
    layout = cgroup.detect(root, v2(root, "/service"))
    assert layout == cgroup.Layout(2, {"unified": root / "service"})
    assert (root / "service" / "cgroup.subtree_control").read_text() == "+memory +pids"


def test_what_is_enabled_is_not_written_again(tmp_path: Path) -> None:
    root = tmp_path / "cgroup"
    proc = v2(root, "/service", enabled="cpu memory pids\n")
    assert cgroup.detect(root, proc).version == 2
    assert (root / "service" / "cgroup.subtree_control").read_text() == "cpu memory pids\n"


@pytest.mark.parametrize("controllers", ["cpu io", "memory", ""])
def test_without_memory_and_pids_there_is_none(tmp_path: Path, controllers: str) -> None:
    root = tmp_path / "cgroup"
    assert cgroup.detect(root, v2(root, "/service", controllers)).version == 0


def busy_groups(monkeypatch: pytest.MonkeyPatch, exempt: Path | None) -> None:
    """Writes to `subtree_control` fail while its group holds processes, as in the kernel; `exempt`: the true root."""
    real = Path.write_text

    def write(path: Path, text: str, *args: object) -> int:
        busy = path.name == "cgroup.subtree_control" and path.parent != exempt
        if busy and (path.parent / "cgroup.procs").read_text():
            raise OSError(16, "Device or resource busy")
        if path.name == "cgroup.procs" and path.parent.name == cgroup.SERVICES:
            members = path.parent.parent / "cgroup.procs"
            real(members, "\n".join(pid for pid in members.read_text().split() if pid != text))
        return real(path, text)

    monkeypatch.setattr(Path, "write_text", write)


def test_a_group_with_processes_gives_way_to_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "cgroup"
    proc = v2(root, "/session", processes=("10", "11"))
    busy_groups(monkeypatch, exempt=root)
    assert cgroup.detect(root, proc) == cgroup.Layout(2, {"unified": root})
    assert (root / "session" / "cgroup.procs").read_text() == "10\n11"


def test_in_a_container_our_processes_move_to_a_leaf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "cgroup"
    proc = v2(root, "/", processes=("1", "7"))
    busy_groups(monkeypatch, exempt=None)
    assert cgroup.detect(root, proc) == cgroup.Layout(2, {"unified": root})
    assert (root / "cgroup.procs").read_text() == ""
    # The next service finds itself in that leaf, and still makes its jails' groups beside it.
    proc.write_text(f"0::/{cgroup.SERVICES}\n")
    assert cgroup.detect(root, proc) == cgroup.Layout(2, {"unified": root})


def test_version_2_counters_are_read(tmp_path: Path) -> None:
    group = cgroup.Group(cgroup.Layout(2, {"unified": tmp_path}), "one")
    group.create()
    at = tmp_path / "one"
    group.limit(Limits(memory_bytes=64 * MIB, processes=8))
    assert [(at / name).read_text() for name in ("memory.max", "memory.swap.max", "pids.max")] == [
        str(64 * MIB), "0", "10",
    ]  # fmt: skip
    (at / "cpu.stat").write_text("usage_usec 1500000\nuser_usec 1\n")
    (at / "memory.events").write_text("low 0\noom 3\noom_kill 2\noom_group_kill 0\n")
    (at / "pids.events").write_text("max 4\n")
    assert group.counters() == cgroup.Counters(1.5, 2, 4)
    assert group.peak() is None, "nothing was reset, so the file would tell of earlier jails"


def test_version_2_kills_a_group_as_a_whole() -> None:
    mounted = [
        line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines() if " - cgroup2 " in line
    ]
    if not mounted:
        pytest.skip("no cgroup version 2 hierarchy is mounted here")
    group = cgroup.Group(cgroup.Layout(2, {"unified": Path(mounted[0])}), "rollstream-test-kill")
    try:
        group._at["unified"].mkdir(exist_ok=True)
    except OSError as error:
        pytest.skip(f"no group can be made: {error}")
    code = "import os, time; [os.fork() for _ in range(3)]; os.write(1, b'1'); time.sleep(600)"
    process = subprocess.Popen(
        ["/bin/sh", "-c", 'echo 0 > "$0" && exec "$1" -c "$2"', group.join_paths[0], sys.executable, code],
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.read(8) == b"1" * 8
        assert len(group.members()) == 8
    finally:
        assert group.remove()
        process.wait()
    assert process.returncode == -9
