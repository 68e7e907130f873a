"""A run's folder: where everything of a run lies, and the page in it that explains it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import shutil
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas.topics import ALL
from services.runtime.errors import UserError
from services.runtime.settings import RunSettings, dump_toml, load

PACKAGES = ("kafka-python", "pyarrow", "numpy", "torch", "transformers", "tokenizers", "minio", "pydantic")


@dataclass(frozen=True)
class RunDir:
    """Paths inside one run's folder."""

    root: Path

    @property
    def config(self) -> Path:
        return self.root / "run.toml"

    @property
    def broker(self) -> Path:
        return self.root / "broker"

    @property
    def store(self) -> Path:
        return self.root / "store"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def ready(self) -> Path:
        return self.root / "ready"

    @property
    def stack(self) -> Path:
        """Written while the stack is up: its pid and bootstrap address."""
        return self.root / "stack.json"

    @property
    def report(self) -> Path:
        return self.root / "report.md"

    @property
    def preparation(self) -> Path:
        """What the preparation measured (cold start), for the report."""
        return self.root / "preparation.json"

    def exists(self) -> bool:
        return self.config.exists()

    def settings(self, secrets: Mapping[str, Mapping[str, str]] | None = None) -> RunSettings:
        """The configuration as it was used; its file holds no secrets: they come from the environment, or by section.

        Raises UserError when the folder holds no run.
        """
        if not self.exists():
            raise UserError("this folder holds no run", str(self.root), "give the folder that `rollstream run` made")
        return load(self.config, **{name: dict(section) for name, section in (secrets or {}).items()})

    def live_bootstrap(self) -> str | None:
        """Address of the running stack's broker; None when no stack of this folder is alive."""
        try:
            found = json.loads(self.stack.read_text())
            os.kill(found["pid"], 0)
        except (OSError, ValueError, KeyError):
            return None
        return str(found["bootstrap"])

    def write_stack(self, bootstrap: str) -> None:
        """Say that this process runs the stack."""
        write_atomic(self.stack, json.dumps({"pid": os.getpid(), "bootstrap": bootstrap}))

    def clear_stack(self) -> None:
        self.stack.unlink(missing_ok=True)

    def create(self, settings: RunSettings) -> None:
        """Make the folder and its explaining files; UserError when it cannot be written or space is short."""
        try:
            for folder in (self.root, self.broker, self.store, self.logs, self.ready):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise UserError(f"the run's folder cannot be made: {e}", str(self.root), "choose another --run-dir") from e
        require_space(self.root)
        write_atomic(self.config, dump_toml(settings))
        write_atomic(self.root / "versions.json", json.dumps(versions(), indent=1) + "\n")
        write_atomic(self.root / "README.md", self.explanation(settings))

    def explanation(self, settings: RunSettings) -> str:
        """The page that lets the folder explain itself."""
        topics = "\n".join(f"- `{t.name}`: {t.record.__doc__.splitlines()[0] if t.record.__doc__ else ''}" for t in ALL)
        return f"""# Run `{settings.run_id}`

Seed {settings.seed}. Continue (or finish) it with:

    rollstream run --run-dir {self.root}

| what | where |
|---|---|
| configuration as used | `run.toml` |
| versions of code and packages | `versions.json` |
| report, written at the end | `report.md`, `plots/` |
| the log: every record of the run | `broker/` (read it with `rollstream tap --run-dir {self.root} TOPIC`) |
| task set, checkpoints, large values | `store/` |
| logs of the services | `logs/` |

`rollstream audit {self.root}` proves that every requested trial has one fate;
`rollstream trial ID --run-dir {self.root}` reads one trial as a conversation.

Topics:
{topics}
"""


def write_atomic(path: Path, text: str) -> None:
    """Write a small file so that a reader never sees half of it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text)
    temporary.replace(path)


def require_space(folder: Path, wanted_mb: int = 500) -> None:
    """UserError when the file system of `folder` has less than `wanted_mb` free."""
    free = shutil.disk_usage(folder).free // 2**20
    if free < wanted_mb:
        raise UserError(
            f"only {free} MB are free there, a run wants {wanted_mb} MB",
            str(folder),
            "free some space or choose another --run-dir; nothing was started",
        )


def free_port(preferred: int = 0) -> int:
    """A loopback port that can be bound now: the preferred one when it is free."""
    for port in (preferred, 0):
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(s.getsockname()[1])
    raise UserError("no loopback port can be bound", "127.0.0.1")


def versions() -> dict[str, Any]:
    """Versions of code, interpreter and packages; `git` is None outside a checkout."""
    here = Path(__file__).parent
    try:
        git = subprocess.run(
            ["git", "-C", str(here), "describe", "--always", "--dirty", "--abbrev=12"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        git = None
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "absent"
    return {"git": git, "python": platform.python_version(), "platform": platform.platform(), "packages": found}
