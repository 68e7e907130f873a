"""No end of a run leaves anything where temporary files lie; what kill -9 leaves goes with whoever comes next."""

import os
import time
from pathlib import Path

import psutil
import pytest

from tests.e2e.test_run import TINY, rollstream, start


def left(home: Path) -> list[str]:
    """What lies there beside the locks of jails, which stay where /run cannot be written."""
    return sorted(name for name in os.listdir(home) if name != f"rollstream-jails-{os.geteuid()}")


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(300)
def test_nothing_is_left_where_temporary_files_lie(cache, tmp_path, monkeypatch):
    home, config, root = tmp_path / "tmp", tmp_path / "run.toml", tmp_path / "run"
    home.mkdir()
    monkeypatch.setenv("TMPDIR", str(home))
    config.write_text(TINY.format(lag=1))
    run = start("run", "--config", str(config), "--run-dir", str(root))
    try:
        end = time.monotonic() + 120
        while not any("-checkpoint-" in name for name in left(home)):
            assert time.monotonic() < end
            assert run.poll() is None, run.communicate()[0]
            time.sleep(0.02)
    finally:
        others = psutil.Process(run.pid).children(recursive=True)
        run.kill()
        run.communicate(timeout=30)
        psutil.wait_procs(others, timeout=30)
    assert left(home), "the killed trainer had a checkpoint under way"
    done = rollstream("run", "--run-dir", str(root), timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert left(home) == []
    assert rollstream("audit", str(root), timeout=60).returncode == 0
    assert rollstream("trial", "tiny/00000000/0", "--run-dir", str(root), timeout=60).returncode == 0
    assert rollstream("backup", str(tmp_path / "copy"), "--run-dir", str(root), timeout=60).returncode == 0
    other = ("--config", str(config), "--run-dir", str(tmp_path / "other"))
    assert rollstream("run", *other, "--set", "sampling.top_k=5", timeout=100).returncode != 0, "a failed start"
    assert left(home) == []
