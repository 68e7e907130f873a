"""What differs from one jail to the next: a fixture's tree, the hash seed, what the interpreter can import."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from services.runtime.errors import UserError
from services.runtime.jail import fixtures, tree
from services.runtime.jail.backend import Options
from services.runtime.jail.launcher import JailHost
from services.runtime.jail.limits import JailFault, Limits
from services.runtime.jail.session import Program, run_trial
from services.tasks import values

SMALL = Limits()
TREE = {"a.py": "A = 1\n", "deep/er/b.py": "B = 2\n"}


def said(host: JailHost, source: str, options: Options, limits: Limits = SMALL) -> list[str]:
    """Answers of `f(1)` in a jail of its own."""
    program = Program({"m.py": source}, "m", "f", exception_names=values.EXCEPTION_NAMES)
    jail = host.launch(limits, options)
    try:
        transcript = run_trial(jail, limits, program, [(1,)], lambda i, a: True, 5.0, 5.0, 20.0, 15.0)
    finally:
        jail.close()
    return [answer.text for answer in transcript.answers] or [f"{transcript.failure}"]


def test_a_fixtures_tree_is_shown_and_each_jail_has_its_own_copy(host: JailHost) -> None:
    if not host.shows_files:
        with pytest.raises(JailFault, match="cannot show files"):
            host.launch(Limits(), Options(files=TREE))
        pytest.skip("this host cannot show files in a jail")
    source = (
        "import sys; sys.path.insert(0, '/tmp/tree')\nimport os, a\nfrom deep.er import b\n"
        "def f(x):\n    found = a.A, b.B, sorted(os.listdir('/tmp/tree/deep/er'))\n"
        "    open('/tmp/tree/a.py', 'w').write('A = 3'); os.rename('/tmp/tree/deep/er/b.py', '/tmp/tree/c.py')\n"
        "    return [*found, os.listdir('/tmp')]"
    )
    for _ in range(2):
        assert said(host, source, Options(files=TREE)) == ['[{"i":"1"},{"i":"2"},["b.py"],["tree"]]']


def test_a_laid_out_tree_that_changed_is_noticed_and_laid_out_anew(tmp_path: Path) -> None:
    trees = fixtures.Fixtures(tmp_path / "trees")
    key, at = trees.show(TREE, "")
    assert fixtures.holds(at, TREE)
    (at / "a.py").write_text("A = 666\n")
    for _ in range(fixtures.RECHECK_USES - 1):
        assert trees.show(TREE, key) == (key, at)
    with pytest.raises(JailFault, match="is not what its digest says"):
        trees.show(TREE, key)
    again = trees.show(TREE, key)[1]
    assert again != at
    assert fixtures.holds(again, TREE)
    with pytest.raises(JailFault, match="two different trees"):
        trees.show({**TREE, "a.py": "A = 2\n"}, key)


@pytest.mark.parametrize("spoil", ["extra", "gone", "link", "hard link", "mode", "folder", "empty folder"])
def test_every_way_in_which_a_tree_can_differ_is_seen(tmp_path: Path, spoil: str) -> None:
    at = fixtures.Fixtures(tmp_path / "trees").show(TREE, "")[1]
    one = at / "a.py"
    if spoil == "extra":
        (at / "deep" / "x.py").write_text("")
    elif spoil == "gone":
        one.unlink()
    elif spoil == "link":
        one.rename(tmp_path / "elsewhere")
        one.symlink_to(tmp_path / "elsewhere")
    elif spoil == "hard link":
        os.link(one, tmp_path / "second")
    elif spoil == "mode":
        one.chmod(0o777)
    elif spoil == "folder":
        one.unlink()
        one.mkdir()
    else:
        (at / "more").mkdir()
    assert not fixtures.holds(at, TREE)


@pytest.mark.parametrize("files", [{"a": "x", "a/b": "y"}, {"a": "\ud800"}, {"\ud800": "x"}, {"n" * 300: "x"}])
@pytest.mark.parametrize("digest", ["", "named"])
def test_a_tree_that_no_disk_can_hold_is_infrastructure(tmp_path: Path, files: dict[str, str], digest: str) -> None:
    with pytest.raises(JailFault):
        fixtures.Fixtures(tmp_path / "trees").show(files, digest)
    assert list((tmp_path / "trees").iterdir()) == []


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x", "a//b", "./a", "", "a/", "a\0b"])
def test_no_path_leads_out_of_a_laid_out_tree(tmp_path: Path, path: str) -> None:
    trees = fixtures.Fixtures(tmp_path / "trees")
    with pytest.raises(JailFault):
        trees.show({path: "x"}, "")
    assert list((tmp_path / "trees").iterdir()) == []
    assert [one.name for one in tmp_path.iterdir()] == ["trees"]


def test_hash_seeds_are_in_force_and_others_are_refused(host: JailHost) -> None:
    source = "def f(x): return hash('x')"
    seen = [said(host, source, Options(hash_seed=seed)) for seed in (0, 1, 1, 2**32 - 1)]
    assert seen[1] == seen[2]
    assert len({str(one) for one in seen}) == 3
    for seed in (-1, 2**32):
        with pytest.raises(JailFault, match="hash seed"):
            host.launch(Limits(), Options(hash_seed=seed))
    with pytest.raises(JailFault, match="is not name:port"):
        host.launch(Limits(), Options(hosts=("example.org",)))
    with pytest.raises(ValueError, match="no hosts"):
        Options(runtime="pytest", hosts=("example.org:443",))


def test_each_runtime_has_what_it_names_and_no_more(host: JailHost) -> None:
    big = Limits(memory_bytes=512 * 1024 * 1024)
    importing = "def f(x):\n    import {}\n    return 1"
    for kind in ("plain", "pytest", "network"):
        found = said(host, importing.format("pytest"), Options(runtime=kind), big)
        assert found == ['{"i":"1"}' if kind == "pytest" else '{"e":"ImportError"}'], kind
    make = (
        "import socket\ndef f(x):\n    found = []\n    for family in (1, 2, 10, 3, 16, 17, 40):\n        try:\n"
        "            socket.socket(family, 2).close(); found.append(family)\n        except PermissionError: pass\n"
        "    return found"
    )
    for kind in ("plain", "pytest"):
        assert said(host, make, Options(runtime=kind), big) == ["[]"]
    assert said(host, make, Options(runtime="network"), big) == ['[{"i":"1"},{"i":"2"},{"i":"10"}]']
    assert said(host, make, Options(runtime="pytest"), big) == ["[]"]


def test_pytest_that_is_not_installed_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="pytest is not installed"):
        tree.staged("pytest")
