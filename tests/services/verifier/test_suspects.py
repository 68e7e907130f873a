"""A candidate that kills its verifier is checked alone and then unknown; its neighbours are cleared."""

from __future__ import annotations

import contextlib
import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from services.runtime.jail.limits import Usage
from services.verifier.attribution import Facts, attribute
from services.verifier.candidate import Unjudgeable
from services.verifier.judge import Judgement
from services.verifier.retries import Courses, Task
from services.verifier.suspects import Suspects


def dying(path: Path, *running: str, run_id: str = "run") -> None:
    """A verifier that is killed while it checks these: what it wrote until then is all that is left."""
    suspects = Suspects(path, run_id, 3)
    with contextlib.ExitStack() as stack:
        for key in running:
            stack.enter_context(suspects.checking(key))
        left = path.read_text()
    path.write_text(left)


def test_what_was_checked_at_a_death_is_checked_alone_and_then_cleared(tmp_path: Path) -> None:
    path = tmp_path / "v.checks.json"
    dying(path, "guilty", "innocent")
    suspects = Suspects(path, "run", 3)
    assert suspects.count == 2
    inside, leave, order = threading.Event(), threading.Event(), list[str]()

    def check(key: str) -> None:
        with suspects.checking(key):
            order.append(key)
            inside.set()
            assert leave.wait(5)

    first = threading.Thread(target=check, args=("innocent",))
    first.start()
    assert inside.wait(5)
    second = threading.Thread(target=check, args=("somebody else",))
    second.start()
    second.join(0.1)
    assert order == ["innocent"]  # nothing runs beside a suspect
    leave.set()
    first.join(5)
    second.join(5)
    assert order == ["innocent", "somebody else"]
    assert suspects.count == 1
    assert json.loads(path.read_text())["deaths"] == {"guilty": 1}


def test_a_starved_check_run_is_repeated_alone(tmp_path: Path) -> None:
    """Beside others it was starved; its repeat has the host to itself, and nobody who comes later goes before it."""
    starved = Facts(ending="deadline", wall_s=10.0, usage=Usage(cpu_s=0.1, host_wait_s=9.0), pressure=0.9)
    assert attribute(starved) == ("infra", "host_starved")
    suspects = Suspects(tmp_path / "v.checks.json", "run", 3)
    running, beside, most = 0, list[int](), 0
    inside, leave, lock = threading.Event(), threading.Event(), threading.Lock()

    def check_run(candidate: SimpleNamespace, check: SimpleNamespace, seed: int) -> Facts:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        if candidate.digest == "victim":
            beside.append(running)
        else:
            inside.set()
            assert leave.wait(5)
        with lock:
            running -= 1
        return starved if candidate.digest == "victim" and len(beside) == 1 else Facts()

    guarded: Any = suspects.guard(check_run)  # type: ignore[arg-type]  # only digests are read

    def start(digest: str) -> threading.Thread:
        thread = threading.Thread(target=guarded, args=(SimpleNamespace(digest=digest), SimpleNamespace(digest=""), 1))
        thread.start()
        return thread

    neighbour = start("neighbour")
    assert inside.wait(5)
    start("victim").join(5)
    repeat = start("victim")
    repeat.join(0.1)
    later = start("later")
    later.join(0.1)
    assert beside == [2]  # it waits for the neighbour to end, and whoever comes later waits for it
    leave.set()
    for thread in (neighbour, repeat, later):
        thread.join(5)
    assert beside == [2, 1]
    assert most == 2


def test_after_its_deaths_it_is_unknown_and_others_are_judged(tmp_path: Path) -> None:
    path = tmp_path / "v.checks.json"
    for _ in range(3):
        dying(path, "guilty")
    suspects = Suspects(path, "run", 3)
    with pytest.raises(Unjudgeable, match="verifier_lost"), suspects.checking("guilty"):
        raise AssertionError("it was run again")
    with suspects.checking("innocent"):
        pass


def test_an_orderly_end_leaves_no_suspects(tmp_path: Path) -> None:
    path = tmp_path / "v.checks.json"
    suspects = Suspects(path, "run", 3)
    running = suspects.checking("slow")
    running.__enter__()
    suspects.close()
    running.__exit__(None, None, None)  # a job that outlives the drain
    assert not path.exists()
    assert Suspects(path, "run", 3).count == 0


def test_another_run_and_a_spoilt_file_are_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "v.checks.json"
    dying(path, "guilty", run_id="yesterday")
    assert Suspects(path, "run", 3).count == 0
    for text in ("", "[]", '{"run_id": "run", "running": 1, "deaths": {}}', '{"run_id": "run"}'):
        path.write_text(text)
        assert Suspects(path, "run", 3).count == 0


def test_a_place_that_cannot_be_written_costs_only_the_memory(tmp_path: Path) -> None:
    suspects = Suspects(tmp_path / "absent" / "v.checks.json", "run", 3)
    with suspects.checking("anybody"):
        pass
    suspects.close()


def test_the_verdict_names_it(tmp_path: Path) -> None:
    """Through the machinery of courses: unknown with its own word, never a fail and never a repeat."""
    from services.runtime.core import Effects
    from services.runtime.settings import Verifier
    from services.verifier.judge import Course
    from tests.services.jails import add_check

    path, check = tmp_path / "v.checks.json", add_check()

    class Tree:
        digest = "sha256:c"

    for _ in range(3):
        dying(path, f"sha256:c {check.digest}")
    runner = Suspects(path, "run", 3).guard(lambda candidate, check_set, seed: pytest.fail("it was run again"))
    said: list[Judgement] = []

    def then(judgement: Judgement) -> Effects:
        said.append(judgement)
        return Effects()

    courses = Courses(Verifier(), runner, lambda: 0)
    [job] = courses.start(Task(Course("t", 3, 3), Tree(), check, then)).jobs  # type: ignore[arg-type]  # a digest is all
    try:
        result: Judgement | Exception = job.run()
    except Exception as error:
        result = error
    job.then(result)
    assert [(one.verdict, one.cause) for one in said] == [("unknown", "verifier_lost")]
