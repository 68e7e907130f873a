"""A warm jail is used again only when it is provably as it started, whatever ran in it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from services.runtime.jail.launcher import JailHost
from services.runtime.jail.limits import Limits
from services.runtime.jail.session import Program
from services.sandbox.pool import Pool
from services.sandbox.reset import MAX_DEPTH, Warm
from services.tasks import values
from tests.services.jails import jail_host

LIMITS = Limits()
TREE = {f"pkg{number // 4}/f{number}.py": f"VALUE = {number}\n" for number in range(12)}

LOOK = """
import os
def f(x):
    found = {}
    for folder, names, files in os.walk("/tmp"):
        found[folder] = sorted(names) + [name + ":" + open(folder + "/" + name).read() for name in sorted(files)]
    kinds = {path: (os.stat(path).st_mode, os.stat(path).st_uid, os.listxattr(path)) for path in found}
    return [found, kinds]
"""

# Each with the outcome that it may have: "clean" where all is put back, "broken" where the jail is thrown away.
LEFT = {
    "files": ("open('/tmp/x', 'w').write('x'); open('/tmp/tree/pkg0/new.py', 'w').write('x')", "clean"),
    "changed": ("open('/tmp/tree/pkg0/f1.py', 'w').write('VALUE = 7\\n')", "clean"),
    "removed": ("shutil.rmtree('/tmp/tree/pkg1'); os.unlink('/tmp/tree/pkg0/f0.py')", "clean"),
    "renamed": ("os.mkdir('/tmp/tree/pkg9'); os.rename('/tmp/tree/pkg0/f0.py', '/tmp/tree/pkg9/f0.py')", "clean"),
    "folder made anew": (
        "shutil.rmtree('/tmp/tree/pkg1'); os.mkdir('/tmp/tree/pkg1'); os.chmod('/tmp/tree/pkg1', 0)",
        "clean",
    ),
    "folder in a file's place": ("os.unlink('/tmp/tree/pkg0/f0.py'); os.mkdir('/tmp/tree/pkg0/f0.py')", "clean"),
    "link in a file's place": (
        "os.unlink('/tmp/tree/pkg0/f0.py'); os.symlink('/tmp/tree/pkg0/f1.py', '/tmp/tree/pkg0/f0.py')",
        "clean",
    ),
    "link in a folder's place": ("shutil.rmtree('/tmp/tree/pkg0'); os.symlink('/', '/tmp/tree/pkg0')", "clean"),
    "links out": ("os.symlink('/', '/tmp/root'); os.symlink('/python', '/tmp/tree/python')", "clean"),
    "hard link": ("os.link('/tmp/tree/pkg0/f0.py', '/tmp/tree/pkg0/two.py')", "clean"),
    "fifo": ("os.mkfifo('/tmp/fifo'); os.unlink('/tmp/tree/pkg0/f0.py'); os.mkfifo('/tmp/tree/pkg0/f0.py')", "clean"),
    "modes": ("os.chmod('/tmp/tree/pkg0/f0.py', 0o7777) if 0 else os.chmod('/tmp', 0o1777)", "clean"),
    "closed folder": ("os.mkdir('/tmp/shut'); open('/tmp/shut/x', 'w'); os.chmod('/tmp/shut', 0)", "clean"),
    "strange names": ("open(b'/tmp/\\xff\\n\\x1b[31m', 'w'); open('/tmp/' + 'n' * 255, 'w')", "clean"),
    "many files": ("[open(f'/tmp/{number}', 'w').close() for number in range(1500)]", "clean"),
    "attributes of /tmp": ("os.setxattr('/tmp', 'user.mark', b'1')", "broken"),
    "deep folders": (f"[(os.mkdir('d'), os.chdir('d')) for _ in range({MAX_DEPTH + 8})]", "broken"),
    "reply pipe does not wait": (
        "[fcntl.fcntl(fd, fcntl.F_SETFL, os.O_NONBLOCK | 1) for fd in range(3, 9) if not gone(fd)]",
        "broken",
    ),
}
PRELUDE = """
import fcntl, mmap, os, shutil
def gone(fd):
    try:
        fcntl.fcntl(fd, fcntl.F_GETFL)
    except OSError:
        return True
"""


@pytest.fixture(scope="module")
def host() -> Iterator[JailHost]:
    """An owner of its own: one of its slots is retired on purpose."""
    yield from jail_host(8)


@pytest.fixture
def pool(host: JailHost) -> Iterator[Pool]:
    if not host.shows_files:
        pytest.skip("this host cannot show files in a jail, so that none is reset")
    pool = Pool(host, LIMITS, 2)
    yield pool
    pool.close()


def run(warm: Warm, source: str) -> list[str]:
    warm.runs += 1
    program = Program({"m.py": source}, "m", "f", exception_names=values.EXCEPTION_NAMES)
    transcript = warm.server.run(program, [(1,)], 2.0, 20.0)
    return [answer.text for answer in transcript.answers]


@pytest.mark.parametrize("name", LEFT)
def test_nothing_that_ran_is_left_for_the_next_run(pool: Pool, name: str) -> None:
    text, outcome = LEFT[name]
    warm = pool.take(TREE, "tree")
    try:
        fresh = run(warm, LOOK)
        assert fresh
        assert warm.reset() == "clean", warm.problem
        assert run(warm, f"{PRELUDE}\ndef f(x):\n    {text}\n    return x\n") == ['{"i":"1"}']
        assert warm.reset() == outcome, warm.problem
        if outcome == "clean":
            assert run(warm, LOOK) == fresh
    finally:
        warm.close()


def test_a_change_through_a_shared_mapping_is_found_whatever_the_times_say(pool: Pool) -> None:
    warm = pool.take(TREE, "tree")
    try:
        fresh = run(warm, LOOK)
        run(warm, "def f(x): open('/tmp/tree/pkg0/f1.py', 'w').write('x')")
        assert warm.reset() == "clean", warm.problem  # the file lies in the upper layer from now on
        mapped = "    mmap.mmap(os.open('/tmp/tree/pkg0/f1.py', os.O_RDWR), 5)[:] = b'EVIL_'\n    return x\n"
        assert run(warm, f"{PRELUDE}\ndef f(x):\n{mapped}") == ['{"i":"1"}']
        assert warm.reset() == "clean", warm.problem
        assert run(warm, LOOK) == fresh
    finally:
        warm.close()


def test_a_repair_that_does_not_hold_retires_the_slot(
    host: JailHost, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    warm = pool.take(TREE, "tree")
    before = host.retired
    run(warm, f"{PRELUDE}\ndef f(x): open('/tmp/tree/pkg0/f1.py', 'w').write('x')")
    monkeypatch.setattr(Warm, "_repair", lambda self, trust_times: None)
    pool.give(warm)
    assert pool.counts["unexplained"] == 1
    assert host.retired == before + 1


FORGED = """
import os, sys, time
def f(x):
    frame, ident = sys._getframe(), None
    while frame is not None:
        for value in frame.f_locals.values():
            if isinstance(value, dict) and "id" in value and "files" in value:
                ident = value["id"]
        frame = frame.f_back
    raw = (ident + "d0").encode()
    for fd in range(3, 9):
        try:
            os.write(fd, len(raw).to_bytes(4, "little") + raw)
        except OSError:
            pass
    time.sleep(60)
"""


def test_a_candidate_that_says_the_run_is_over_but_lives_on_loses_its_jail(pool: Pool) -> None:
    warm = pool.take(TREE, "tree")
    try:
        run(warm, FORGED)
        assert warm.reset() == "broken"
    finally:
        warm.close()


def test_jails_are_kept_for_the_same_tree_and_only_so_many(host: JailHost, pool: Pool) -> None:
    free = host.free
    first = pool.take(TREE, "tree")
    pool.give(first)
    small = pool.take({"a.py": ""}, "small")
    assert small is not first
    small.close()
    assert pool.take(TREE, "tree") is first
    assert pool.counts["reused"] == 1
    third, fourth = pool.take(TREE, "tree"), pool.take(TREE, "tree")
    for warm in (first, third, fourth):
        pool.give(warm)
    assert pool.ready == 2
    assert pool.counts["surplus"] == 1
    pool.close()
    assert host.free == free


def test_a_pool_that_is_short_is_filled(host: JailHost, pool: Pool) -> None:
    assert pool.short
    while pool.fill():
        pass
    assert (pool.ready, pool.short) == (2, False)
    taken = pool.take({"a.py": ""}, "small")
    assert pool.counts["reused"] == 1
    taken.close()


def test_without_mounts_of_our_own_every_workspace_has_a_fresh_jail(
    host: JailHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "private_mounts", False)
    monkeypatch.setattr(host, "shows_files", False)
    pool = Pool(host, LIMITS, 2)
    warm = pool.take(TREE, "tree")
    assert (warm.resettable, warm.key) == (False, "")
    run(warm, LOOK)
    assert pool.clean(warm), "a workspace keeps its own jail over its own runs"
    pool.give(warm)
    assert (pool.ready, warm.server.jail.closed, pool.counts["spent"]) == (0, True, 1)
    while pool.fill():
        pass
    assert pool.ready == 2, "unused ones can wait all the same"
    pool.close()


def test_a_tree_that_takes_longer_to_prove_than_a_jail_to_start_gets_a_fresh_jail_for_each_run(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from services.sandbox import pool as pools

    monkeypatch.setattr(pools, "RESET_UP_TO", len(TREE) - 1)
    warm = pool.take(TREE, "tree")
    assert (warm.resettable, pool.clean(warm)) == (False, True)
    run(warm, LOOK)
    assert not pool.clean(warm)
    pool.give(warm)
    assert (pool.ready, warm.server.jail.closed) == (0, True)


def test_a_number_used_anew_is_not_followed_into_another_tree(pool: Pool) -> None:
    warm = pool.take(TREE, "tree")
    warm.close()
    assert warm.reset() == "broken"
    assert os.path.exists("/tmp")


@pytest.mark.parametrize(("reset_s", "cycle_s", "episodes"), [(3.5, 8.0, 115_200), (0.015, 4.515, 204_120)])
def test_the_benchs_slot_arithmetic_is_that_of_the_worked_example(
    reset_s: float, cycle_s: float, episodes: float
) -> None:
    from tests.bench.sandbox_bench import capacity

    assert capacity(reset_s) == pytest.approx((cycle_s, episodes), abs=1)
