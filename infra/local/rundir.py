"""A run's folder: where everything of a run lies, and the page in it that explains it."""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import platform
import secrets
import shlex
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.lock import Held, Lock, is_held, me
from schemas.topics import ALL
from services.runtime.errors import UserError
from services.runtime.settings import RunSettings, dump_toml, load
from services.runtime.store import file_url
from services.runtime.toml import literal, read_toml

OWN_STORE = "file:store"
"""How a run's file names the store in its own folder: beside the file, wherever the folder goes."""
LONGEST = 4096 - 320
"""Bytes of a folder's path under which every path inside it stays below the kernel's limit."""
MARK = "rollstream run"
PACKAGES = ("kafka-python", "pyarrow", "numpy", "torch", "transformers", "tokenizers", "minio", "pydantic")


@dataclass(frozen=True)
class RunDir:
    """Paths inside one run's folder, absolute: processes are told them, wherever they work and whatever they begin
    with."""

    root: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", self.root.absolute())

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
        """Written while the stack is up: its bootstrap address."""
        return self.root / "stack.json"

    @property
    def lock(self) -> Path:
        """Held by whoever runs the run, or makes its folder; says who that is and where the folder lies."""
        return self.root / "lock"

    @property
    def report(self) -> Path:
        return self.root / "report.md"

    @property
    def preparation(self) -> Path:
        """What the preparation measured (cold start), for the report."""
        return self.root / "preparation.json"

    @property
    def quoted(self) -> str:
        """The folder as a shell reads it, for the commands that messages advise."""
        return shlex.quote(str(self.root))

    def exists(self) -> bool:
        return self.config.exists()

    def settings(self, logins: Mapping[str, Mapping[str, str]] | None = None) -> RunSettings:
        """The configuration as it was used; its file holds no secrets: they come from the environment, or by section.

        Raises UserError when the folder holds no run.
        """
        if not self.exists():
            raise UserError("this folder holds no run", str(self.root), "give the folder that `rollstream run` made")
        given = {name: dict(section) for name, section in (logins or {}).items()}
        settings = load(self.config, **given)
        store = settings.store.url
        if store and store == self._store_of_before():
            store = file_url(self.store)
        section = settings.store.model_copy(update={"url": store})
        return settings.model_copy(update={"store": section, "run_dir": str(self.root)})

    def _store_of_before(self) -> str:
        """The URL of the own store in a file from before `OWN_STORE`: the place where the folder was then; else ""."""
        values = read_toml(self.config)
        url, made_as = str(values.get("store", {}).get("url", "")), str(values.get("run_dir", ""))
        then = url.removeprefix("file://").removesuffix("/store")
        named = made_as.strip("/") and f"/{then}".endswith(f"/{made_as.strip('/')}")
        return url if named and url == f"file://{then}/store" and self._ours() else ""

    def renew(self) -> None:
        """Let a file from before `OWN_STORE` name the own store as one of today does. Only under the claim."""
        before = self._store_of_before()
        if before:
            text = self.config.read_text()
            write_atomic(self.config, text.replace(f"url = {literal(before)}\n", f'url = "{OWN_STORE}"\n'))

    # -- whose the folder is, and who runs it ------------------------------------------------------------------------

    def _said(self) -> dict[str, Any]:
        """What the last holder of the lock wrote; empty where no run of ours is."""
        with contextlib.suppress(OSError, ValueError):
            said = json.loads(self.lock.read_text())
            if isinstance(said, dict) and said.get("made by") == MARK and said.get("id"):
                return said
        return {}

    def _ours(self) -> bool:
        """Whether `rollstream` made this folder; settings alone are anybody's file."""
        return bool(self._said()) or (self.exists() and (self.root / "versions.json").exists())

    def held(self) -> bool:
        """Whether somebody runs this run now, or makes its folder."""
        return is_held(self.lock)

    def live_bootstrap(self) -> str | None:
        """Address of the running stack's broker; None when no stack of this folder is alive."""
        try:
            found = str(json.loads(self.stack.read_text())["bootstrap"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return found if self.held() else None

    def write_stack(self, bootstrap: str) -> None:
        """Say where the stack's broker is."""
        write_atomic(self.stack, json.dumps({"bootstrap": bootstrap}))

    def clear_stack(self) -> None:
        self.stack.unlink(missing_ok=True)

    @contextlib.contextmanager
    def claimed(self) -> Iterator[None]:
        """This process alone runs the run, or makes its folder, until the block ends.

        A folder in which the block made nothing is gone afterwards. Raises UserError, before anything is written, for a
        folder that somebody holds, that is somebody else's, that is a copy which would write into the original's store
        or topics, and for a place where no run can be.
        """
        self._require_possible()
        made = self._make()
        try:
            lock = self._locked()
        except UserError:
            _remove(made)
            raise
        try:
            said = self._said()
            original = self._original(said)
            self._require_apart(lock, original)
            if original:
                (self.root / "port").unlink(missing_ok=True)  # the original's, whose clients may be looking for it
            name = said.get("id") if said and not original else secrets.token_hex(8)
            holder = {"made by": MARK, "id": name, "held by": me(), "folder": str(self.root.resolve())}
            lock.say(json.dumps(holder) + "\n")
            self.clear_stack()  # that of one that was killed
            yield
        finally:
            with contextlib.suppress(OSError):
                if os.listdir(self.root) == [self.lock.name]:
                    self.lock.unlink()
                    _remove(made)
            lock.release()

    def _require_possible(self) -> None:
        shown = ascii(str(self.root)) if not _is_text(self.root) else str(self.root)
        choose = "choose another --run-dir; nothing was written"
        if not _is_text(self.root):
            raise UserError("the folder's name is no text in UTF-8", shown, choose)
        try:
            if len(os.fsencode(self.root.resolve())) > LONGEST:
                raise UserError(f"the folder's path is longer than {LONGEST} bytes", shown, choose)
            inside = os.listdir(self.root)
        except FileNotFoundError:
            return
        except (OSError, RuntimeError) as e:
            why = e.strerror if isinstance(e, OSError) else e
            raise UserError(f"the run's folder cannot be read: {why}", shown, choose) from e
        begun = inside == [self.lock.name] and not self.lock.stat().st_size  # ended before it had said a word
        if inside and not begun and not self._ours():
            raise UserError(
                f"this folder holds no run, and is not empty ({', '.join(sorted(inside)[:3])})",
                shown,
                "give a new folder, or one in it; nothing was written",
            )

    def _make(self) -> list[Path]:
        """Make the folder; returns what had to be made, innermost first."""
        made = [folder for folder in (self.root, *self.root.parents) if not os.path.lexists(folder)]
        try:
            self.root.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            _remove(made)
            raise UserError(
                f"the run's folder cannot be made: {e.strerror}", str(self.root), "choose another --run-dir"
            ) from e
        return made

    def _locked(self) -> Lock:
        try:
            lock = Lock(self.lock)
        except Held:
            raise UserError(
                f"this run is running already ({self._said().get('held by', 'its holder has not said who it is')})",
                str(self.root),
                f"watch it: rollstream tap all --run-dir {self.quoted}",
            ) from None
        except OSError as e:
            raise UserError(
                f"the run's folder cannot be written: {e.strerror}", str(self.lock), "choose another --run-dir"
            ) from e
        return lock

    def _original(self, said: Mapping[str, Any]) -> Path | None:
        """The folder of which this one is a copy, while it is where it was; one that was moved has none."""
        there = Path(str(said.get("folder", "")))
        if not said or there == self.root.resolve() or RunDir(there)._said().get("id") != said["id"]:
            return None
        return there

    def _require_apart(self, lock: Lock, original: Path | None) -> None:
        """Raises UserError for a copy whose records or objects would be the original's."""
        if lock.links > 1:
            raise UserError(
                "this folder's files are those of another folder too (hard links): a run here would write into both",
                str(self.root),
                "copy it anew with files of its own: cp -r",
            )
        if original is None or not self.exists():
            return
        values = read_toml(self.config)
        url, cluster = values.get("store", {}).get("url", ""), values.get("kafka", {}).get("bootstrap", "")
        if cluster or url not in ("", OWN_STORE, self._store_of_before()):
            what = "topics" if cluster else "store"
            raise UserError(
                f"this folder is a copy of {original}, and would write into the same {what}",
                str(cluster or url),
                "continue the original, or `rollstream backup` it and `restore` it elsewhere; nothing was written",
            )

    def create(self, settings: RunSettings) -> None:
        """Make the folder and its explaining files; UserError when it cannot be written or space is short."""
        try:
            for folder in (self.root, self.broker, self.store, self.logs, self.ready):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as e:
            raise UserError(f"the run's folder cannot be made: {e}", str(self.root), "choose another --run-dir") from e
        require_space(self.root)
        own = settings.store.url == file_url(self.store)
        section = settings.store.model_copy(update={"url": OWN_STORE if own else settings.store.url})
        # Settings without the versions beside them are those of a run that is deployed elsewhere: they come first.
        write_atomic(self.root / "versions.json", json.dumps(versions(), indent=1) + "\n")
        write_atomic(self.config, dump_toml(settings.model_copy(update={"store": section, "run_dir": "."})))
        readme = self.root / "README.md"
        if not readme.exists():  # one that somebody has written on since stays as it is
            write_atomic(readme, self.explanation(settings))

    def explanation(self, settings: RunSettings) -> str:
        """The page that lets the folder explain itself."""
        topics = "\n".join(f"- `{t.name}`: {t.record.__doc__.splitlines()[0] if t.record.__doc__ else ''}" for t in ALL)
        return f"""# Run `{settings.run_id}`

Seed {settings.seed}. Continue (or finish) it with this command, in this folder:

    rollstream run --run-dir .

| what | where |
|---|---|
| configuration as used | `run.toml` |
| versions of code and packages | `versions.json` |
| report, written at the end | `report.md`, `plots/` |
| the log: every record of the run | `broker/` (read it with `rollstream tap --run-dir . TOPIC`) |
| task set, checkpoints, large values | `store/` |
| logs of the services | `logs/` |
| who runs it now, while somebody does | `lock` |

The folder may be moved or copied while nobody runs it.

`rollstream audit .` proves that every requested trial has one fate;
`rollstream trial ID --run-dir .` reads one trial as a conversation.

Topics:
{topics}
"""


def _is_text(path: Path) -> bool:
    try:
        return "\0" not in str(path) and bool(str(path).encode())
    except UnicodeEncodeError:
        return False


def _remove(folders: list[Path]) -> None:
    """Remove empty folders, innermost first."""
    with contextlib.suppress(OSError):
        for folder in folders:
            folder.rmdir()


def write_atomic(path: Path, text: str) -> None:
    """Write a small file so that a reader never sees half of it."""
    temporary = path.with_name(f".{path.name}.new")
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
