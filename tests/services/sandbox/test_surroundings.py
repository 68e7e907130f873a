"""The memory wall around a service is read in every layout; one that does not fit behind it says what to set."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from services.runtime.errors import UserError
from services.runtime.jail import surroundings
from services.runtime.jail.announce import announce, crowded
from services.runtime.jail.limits import MIB, Limits
from services.runtime.jail.surroundings import Surroundings
from services.runtime.logs import Log

V1 = "8:pids:/kubepods/x\n4:memory:/kubepods/x\n0::/\n"
V2 = "0::/\n"
NODE = 64 * 1024 * MIB


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surroundings, "_machine_memory", lambda: NODE)
    monkeypatch.setattr(surroundings, "host_oom_kills", lambda: 99)


def around(tmp_path: Path, own: str, files: dict[str, str]) -> Surroundings:
    proc = tmp_path / "cgroup"
    proc.write_text(own)
    for name, text in files.items():
        path = tmp_path / "sys" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Surroundings(tmp_path / "sys", proc)


NONE = "9223372036854771712"
KILLS = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"


@pytest.mark.parametrize(("own", "files", "limit", "kills"), [
    # A container of version 1 sees its own group at the top, under a name that only the node knows.
    (V1, {"memory/memory.limit_in_bytes": "943718400", "memory/memory.stat": "hierarchical_memory_limit 943718400\n",
          "memory/memory.oom_control": KILLS}, 943718400, 3),
    # The pod's limit is lower than the container's.
    (V1, {"memory/memory.limit_in_bytes": NONE, "memory/memory.stat": "hierarchical_memory_limit 1048576\n",
          "memory/memory.oom_control": KILLS}, 1048576, 3),
    (V1, {"memory/kubepods/x/memory.limit_in_bytes": "1048576", "memory/memory.limit_in_bytes": NONE,
          "memory/kubepods/x/memory.oom_control": KILLS}, 1048576, 3),
    # The root of the hierarchy counts nothing of its own: the machine does.
    ("4:memory:/\n", {"memory/memory.limit_in_bytes": NONE, "memory/memory.oom_control": KILLS,
                      "memory/cgroup.sane_behavior": "0"}, NODE, 99),
    (V2, {"memory.max": "943718400\n", "memory.events": "oom 2\noom_kill 1\noom_group_kill 0\n"}, 943718400, 1),
    (V2, {"memory.max": "max\n", "memory.events": "oom_kill 0\n"}, NODE, 0),
    ("0::/a/b\n", {"a/b/memory.max": "max\n", "a/memory.max": "1048576\n", "a/b/memory.events": "oom_kill 5\n"},
     1048576, 5),
    # Nothing shows.
    (V2, {}, NODE, 99),
    ("nonsense", {}, NODE, 99),
])  # fmt: skip
def test_the_wall(tmp_path: Path, own: str, files: dict[str, str], limit: int, kills: int) -> None:
    found = around(tmp_path, own, files)
    assert (found.memory_limit(), found.kills()) == (limit, kills)
    assert found.walled == (limit < NODE)


class Place:
    """A backend's account of its place."""

    name = "bubblewrap"
    weaknesses = ("one_user",)

    def __init__(self, evidence: str, megabytes: int | None) -> None:
        self.evidence = evidence
        self.surroundings: Any = self
        self._megabytes = megabytes
        self.walled = megabytes is not None

    def memory_limit(self) -> int:
        return NODE if self._megabytes is None else self._megabytes * MIB


def said(place: Any, busy: int = 3, slots: int = 6) -> str | None:
    return crowded(place, Limits(), busy, slots, "verifier.workers")


def test_jails_that_fit_say_nothing() -> None:
    assert said(Place("sampled", None)) is None
    assert said(Place("sampled", 1200)) is None
    assert said(Place("cgroup", 1200)) is None


def test_jails_that_could_exceed_the_wall_say_what_to_set() -> None:
    warning = said(Place("sampled", 900))
    assert warning is not None
    assert "resources.limits.memory to 1084Mi" in warning
    assert "verifier.workers to 2" in warning
    assert said(Place("sampled", 1084)) is None
    # Where nobody watches the sum, each process of a jail may use what the jail may.
    assert said(Place("rlimit", 4096)) is not None
    assert said(Place("rlimit", 4096), busy=1, slots=1) is not None


def test_a_wall_that_holds_not_one_run_refuses() -> None:
    with pytest.raises(UserError, match=r"holds the service and not one run.*(\n.*)*1084Mi"):
        said(Place("sampled", 400))


def test_the_start_is_one_line_and_a_metric() -> None:
    stream, registry = io.StringIO(), CollectorRegistry()
    place: Any = Place("sampled", None)
    announce(place, Log("verifier", "run", stream), registry, None)
    [line] = map(json.loads, stream.getvalue().splitlines())
    assert (line["level"], line["attribution"], line["absent"]) == ("info", "sampled", ["one_user"])
    values = {level: registry.get_sample_value("rlvr_jail_attribution", {"evidence": level})
              for level in ("cgroup", "engine", "sampled", "rlimit")}  # fmt: skip
    assert values == {"cgroup": 0, "engine": 0, "sampled": 1, "rlimit": 0}
    assert registry.get_sample_value("rlvr_jail_absent", {"what": "one_user"}) == 1
    assert registry.get_sample_value("rlvr_jail_absent", {"what": "no_inode_limit"}) == 0
    stream.truncate(0)
    announce(place, Log("verifier", "run", stream), CollectorRegistry(), "too full")
    assert "too full" in stream.getvalue()
