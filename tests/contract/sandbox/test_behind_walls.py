"""An unprivileged pod's jails, behind the same walls on this machine: they hold, and nobody is blamed for the pod."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from services.runtime.jail import cgroup
from services.runtime.jail.limits import MIB
from tests.contract.sandbox import behind_walls
from tests.contract.sandbox.test_cpu import MOST_S
from tests.services import pod_like

LIMIT_MB = 320
Found = dict[str, Any]


@contextlib.contextmanager
def memory_group(megabytes: int) -> Iterator[Path | None]:
    """A group with this limit for everything of a pod; None where this machine has no version 1 memory groups."""
    base = cgroup.ROOT / "memory"
    if not (base / "memory.limit_in_bytes").exists():
        yield None
        return
    at = base / cgroup.own_groups(Path("/proc/self/cgroup").read_text())["memory"].lstrip("/")
    group = at / f"rollstream-pod-{os.getpid()}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(megabytes * MIB))
        with contextlib.suppress(OSError):  # without swap accounting
            (group / "memory.memsw.limit_in_bytes").write_text(str(megabytes * MIB))
        yield group
    finally:
        for _ in range(50):
            with contextlib.suppress(OSError):
                group.rmdir()
                break
            subprocess.run(["sleep", "0.1"])


@pytest.fixture(scope="module")
def found() -> Iterator[Found]:
    why = pod_like.missing()
    if why:
        pytest.skip(why)
    with tempfile.TemporaryDirectory() as folder, memory_group(LIMIT_MB) as group:
        Path(folder).chmod(0o755)
        argument = str(LIMIT_MB if group else 0)
        line = pod_like.command(Path(folder), "-m", "tests.contract.sandbox.behind_walls", argument)
        if group is not None:
            line = ["sh", "-c", f'echo 0 > {group}/cgroup.procs; exec "$@"', "sh", *line]
        done = subprocess.run(line, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr[-3000:]
        yield json.loads(done.stdout)


def ended(found: Found, name: str) -> tuple[str, str]:
    return found[name]["outcome"], found[name]["cause"]


def test_the_self_test_holds_and_says_what_is_absent(found: Found) -> None:
    assert found["user"] == pod_like.USER
    assert found["evidence"] == "sampled"
    assert found["weaknesses"] == ["one_user", "no_inode_limit", "one_library", "namespaces_by_filter"]
    assert found["retired"] == 0


@pytest.mark.parametrize("name", ["right", "kills itself", "kills all that it sees", "memory that children share",
                                  "as many as it may"])  # fmt: skip
def test_what_is_right_passes(found: Found, name: str) -> None:
    assert ended(found, name) == ("pass", "ok")
    assert found[name]["evidence"] == "sampled"


@pytest.mark.parametrize(("name", "cause"), [
    ("exits as if killed", "crash"),
    ("faults", "crash"),
    ("child killed, parent lies", "wrong_value"),
    ("memory of several", "oom"),
    ("shared memory of several", "oom"),
    ("memory of several that hide", "oom"),
    ("forks", "processes"),
    ("spins in C", "cpu_limit"),
])  # fmt: skip
def test_what_is_wrong_fails_for_what_it_did(found: Found, name: str, cause: str) -> None:
    assert ended(found, name) == ("fail", cause)


def test_where_nothing_counts_kills_what_looks_like_one_is_nobodys_fault(found: Found) -> None:
    assert ended(found, "unseen: exits as if killed") == ("infra", "memory_killer")
    assert ended(found, "unseen: faults") == ("fail", "crash")
    assert ended(found, "unseen: spins in C") == ("fail", "cpu_limit")


def test_a_pod_out_of_memory_is_infrastructure(found: Found) -> None:
    if "out of memory" not in found:
        pytest.skip("this machine has no version 1 memory groups")
    assert found["wall"] == LIMIT_MB * MIB
    assert found["out of memory"]["outer"] >= 1
    assert ended(found, "out of memory") == ("infra", "memory_killer")
    assert ended(found, "after") == ("pass", "ok")


def test_every_program_is_expected_to_end_somehow(found: Found) -> None:
    assert set(behind_walls.PROGRAMS) <= set(found)


@pytest.mark.parametrize("function", ["f", "relay"])
def test_children_that_spin_are_counted_and_ended(found: Found, function: str) -> None:
    ending, cpu_s = found[f"spinning: {function}"]
    assert ending == "limit"
    assert cpu_s < MOST_S


def test_jails_have_nothing_in_common_there_either(found: Found) -> None:
    assert found["heard"] == []
    assert found["shared"] == 0
