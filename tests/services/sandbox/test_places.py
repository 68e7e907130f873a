"""Where the interpreter of jails is staged: made under any umask, on any file system, by any user, or refused in words
that are true."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.services import pod_like


@pytest.fixture(autouse=True)
def walls() -> None:
    why = pod_like.missing()
    if why:
        pytest.skip(why)


def said(line: list[str], *mounts: str) -> str:
    """Output of a command in a mount namespace of its own, after these mounts."""
    script = "\n".join(["set -e", *mounts, 'exec "$@"'])
    whole = ["unshare", "--mount", "sh", "-c", script, "sh", *line]
    done = subprocess.run(whole, cwd=pod_like.ROOT, capture_output=True, text=True, timeout=100)
    assert "Traceback" not in done.stderr, done.stderr[-3000:]
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def as_root(*changes: str, options: str = "") -> str:
    """With a new file system with these options at /var/lib, as on a machine where nothing was ever made."""
    mount = f"mount -t tmpfs -o mode=0755{options} tmpfs /var/lib"
    return said([sys.executable, "-m", "tests.services.sandbox.placed", *changes], mount)


def as_user(folder: Path, *changes: str, options: str = "") -> str:
    """As user 10001, whom /etc/passwd does not know; all that it may write to is below `folder`."""
    folder.chmod(0o755)
    line = pod_like.command(folder, "-m", "tests.services.sandbox.placed", *changes)
    return said(line, f"mount -t tmpfs -o mode=0755{options} tmpfs {folder}")


@pytest.fixture
def open_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose parents everybody can enter."""
    import tempfile

    return Path(tempfile.mkdtemp(prefix="rollstream-places-"))


def test_root_stages_under_a_closed_umask() -> None:
    assert as_root("umask=077") == "ok\n"


def test_root_stages_where_no_program_may_be_run() -> None:
    assert as_root(options=",noexec") == "ok\n"


def test_root_without_space_is_told_how_much_to_free() -> None:
    told = as_root(options=",size=8m")
    assert "no space is left" in told
    assert "/var/lib/rollstream" in told
    assert "free 250 MB" in told
    assert "XDG_CACHE_HOME" not in told  # root's place does not follow it


def test_root_who_can_write_nowhere_is_told_about_every_place() -> None:
    temporary = [path for path in ("/tmp", "/var/tmp", "/usr/tmp") if Path(path).exists()]
    # Closed as they are: this checkout and its interpreter may lie in one of them.
    closed = [f"mount --bind {path} {path}\nmount -o remount,bind,ro {path}" for path in temporary]
    line = [sys.executable, "-m", "tests.services.sandbox.placed"]
    told = said(line, "mount -t tmpfs -o mode=0755,ro tmpfs /var/lib", *closed)
    assert "/var/lib/rollstream: Read-only file system" in told
    assert "no folder for temporary files can be written" in told
    assert "owned by user 0" in told


@pytest.mark.parametrize("changes", [
    ("HOME=", "umask=077"), ("HOME=/nonexistent",), ("HOME=/",), ("HOME=", "XDG_CACHE_HOME=relative"),
])  # fmt: skip
def test_a_user_without_a_home_stages_beside_the_temporary_files(open_path: Path, changes: tuple[str, ...]) -> None:
    try:
        assert as_user(open_path, *changes) == "ok\n"
    finally:
        open_path.rmdir()


def test_a_user_under_a_closed_umask(open_path: Path) -> None:
    try:
        assert as_user(open_path, "umask=077") == "ok\n"
    finally:
        open_path.rmdir()


def test_a_user_whose_places_run_no_programs_is_told_so(open_path: Path) -> None:
    try:
        told = as_user(open_path, options=",noexec")
    finally:
        open_path.rmdir()
    assert "(noexec)" in told
    assert "without noexec, or set XDG_CACHE_HOME" in told


def test_a_user_without_space_is_told_how_much_to_free(open_path: Path) -> None:
    try:
        told = as_user(open_path, options=",size=8m")
    finally:
        open_path.rmdir()
    assert "no space is left" in told
    assert "free 250 MB on this file system, or set XDG_CACHE_HOME" in told
