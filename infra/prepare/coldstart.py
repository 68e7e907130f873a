"""The cold-started base policy: from the cache by the digest of its recipe, else trained in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from infra.child import ENVIRONMENT, PARENT
from infra.prepare.materials import require_base
from services.runtime.errors import UserError
from services.runtime.scratch import Scratch
from services.runtime.settings import RunSettings, secret_environment, without_settings
from services.runtime.store import open_store

Progress = Callable[[dict[str, Any]], None]


def cache_folder() -> Path:
    """Where cold starts are kept between runs: `ROLLSTREAM_CACHE`, else `~/.cache/rollstream`."""
    return Path(os.environ.get("ROLLSTREAM_CACHE") or Path.home() / ".cache" / "rollstream")


def recipe_digest(settings: RunSettings) -> str:
    """`sha256:…` of everything that decides the base. The task set must be in the store."""
    from services.tasks.taskset import load_public
    from services.trainer.coldstart_recipe import digest

    require_base(settings)
    public = open_store(settings.store).get(f"tasks/{settings.taskset_digest}/public.json")
    return digest(settings, load_public(public))


def cold_start(
    settings: RunSettings, config: Path, home: Path, log: Path, progress: Progress
) -> tuple[Path, dict[str, Any]]:
    """The base policy's folder and its report.

    `config`: the settings as a file; `home`: for a result that serves this run alone; `log`: the training process's
    own. `progress` is given that process's progress records. Raises UserError with the end of its log when it fails.
    """
    from services.trainer.coldstart_recipe import REPORT_FILE

    known = recipe_digest(settings).removeprefix("sha256:")
    for place in (cache_folder(), home):
        found = place / "coldstart" / known
        if (found / REPORT_FILE).exists():
            return found, {**json.loads((found / REPORT_FILE).read_text()), "cached": True}
    # Training sees no hidden check: it is given the login of the public store alone.
    environment = {
        **without_settings(os.environ),
        **ENVIRONMENT,
        **secret_environment(settings, "coldstart"),
        PARENT: str(os.getpid()),
    }
    command = [sys.executable, "-m", "infra.child", "infra.prepare.coldstart_job"]
    command += ["--config", str(config), "--home", str(home), "--cache", str(cache_folder()), "--digest", known]
    result: dict[str, Any] = {}
    with (
        log.open("ab") as errors,
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, env=environment, text=True
        ) as child,
    ):
        assert child.stdout is not None
        try:
            for line in child.stdout:
                record = json.loads(line)
                if record.get("event") == "done":
                    result = record
                else:
                    progress(record)
        except BaseException:
            child.kill()
            raise
    if child.returncode != 0 or not result:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-12:])
        raise UserError(f"the cold start failed (exit code {child.returncode}):\n{tail}", str(log))
    return Path(result["folder"]), dict(result["report"])


def adopt(folder: Path, cache: Path, digest: str) -> Path:
    """Move a finished cold start to its place under `cache` in one step; an equal one that came first wins."""
    target = cache / "coldstart" / digest
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.is_dir():
        with Scratch("adopt", target.parent) as beside:
            whole = Path(shutil.move(folder, beside / "whole"))
            with contextlib.suppress(OSError):  # another process was quicker
                whole.replace(target)
    return target
