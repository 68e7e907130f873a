"""Protects a person in front of a full disk: the progress line says so within seconds, and the report says it once."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.local.run import Display, conclude
from infra.local.rundir import RunDir
from infra.local.space import EVERY_S, SpaceWatch
from infra.local.watch import Watcher
from services.runtime.errors import UserError
from services.runtime.settings import load


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no small file system can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    path = folder / "filling"
    with path.open("wb", buffering=0) as out, contextlib.suppress(OSError):
        while True:
            out.write(bytes(4096))
    return path


def test_the_progress_line_names_a_full_disk_and_forgets_it_when_there_is_room(small_disk: Path) -> None:
    now = [0.0]
    watch = SpaceWatch([small_disk], lambda: now[0])
    display = Display(load(None))
    assert watch.trouble() == ""
    filling = fill(small_disk)
    now[0] += EVERY_S
    display.progress.trouble = watch.trouble()
    assert display.progress.line().startswith(f"DISK FULL: {small_disk} (No space left on device")
    assert str(small_disk) in str(display.progress.panel().renderable.columns[1]._cells[0])
    filling.unlink()
    assert watch.trouble() != ""  # asked every two seconds at most
    now[0] += EVERY_S
    assert watch.trouble() == ""
    assert list(small_disk.iterdir()) == []


def test_a_report_that_finds_no_space_is_one_message_after_the_audit(
    small_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = RunDir(small_disk)
    settings = load(None, run_dir=str(small_disk))
    fill(small_disk)
    with pytest.raises(UserError, match="the report cannot be written: No space left"):
        conclude(run, settings, settings.kafka, Watcher(settings.kafka), {"finished": True}, Display(settings))
    assert "audit: 0 requested" in capsys.readouterr().out
