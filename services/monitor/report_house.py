"""The parts of the report about the run itself: cold start, configuration, versions, seeds, topics, how to go on."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from services.runtime.screen import code, markdown

if TYPE_CHECKING:
    from services.runtime.settings import RunSettings

_SHOWN = 16
"""Items of a list that stand in one cell of a table, at most."""
_PACKAGES = ("kafka-python", "pyarrow", "numpy", "torch", "transformers", "tokenizers", "minio", "pydantic")


def cold_start(report: Any) -> str:
    """The cold start's own report as a table, apart from what RL did."""
    if not report:
        return "Not measured here: the run started from a base that was given, or its report is not at hand."
    if not isinstance(report, Mapping):
        return code(report)
    rows = ["Supervised training on generated repair traces, before the first update; not part of the gain above.", ""]
    rows += ["| | |", "|---|---|"]
    rows += [f"| {markdown(name)} | {value} |" for name, value in _flat(report)]
    return "\n".join(rows)


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        name = f"{prefix}{key}".replace("_", " ")
        if isinstance(value, Mapping):
            yield from _flat(value, f"{name}: ")
        elif isinstance(value, (list, tuple)):
            yield name, _sequence(value)
        elif isinstance(value, float):
            yield name, f"{value:.4g}"
        else:
            yield name, "not measured" if value is None else _cell(str(value))


def _sequence(values: list[Any] | tuple[Any, ...]) -> str:
    """A list in one cell: pairs as `step: value`; of a long one some items, the last always (it says where it went)."""
    step = -(-len(values) // _SHOWN)
    shown = [values[i] for i in range(len(values)) if i % step == (len(values) - 1) % step] if values else []
    pairs = all(isinstance(v, (list, tuple)) and len(v) == 2 for v in shown)
    texts = [f"{_number(v[0])}: {_number(v[1])}" if pairs else _number(v) for v in shown]
    return _cell(", ".join(texts) or "none")


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return json.dumps(value) if isinstance(value, (dict, list, tuple)) else str(value)


def _cell(text: str) -> str:
    return markdown(text, 2_000)


def this_run(folder: Path, settings: RunSettings, extra: Mapping[str, Any]) -> str:
    """How to continue, seeds, what differs from the defaults, versions, topics, and the whole configuration."""
    from schemas.topics import ALL
    from services.runtime.settings import dump_toml

    base = shlex.quote(str(folder))
    versions = extra.get("versions") or stored_versions(folder)
    packages = ", ".join(
        f"{markdown(name)} {markdown(version)}" for name, version in versions.get("packages", {}).items()
    )
    revision = markdown(versions.get("git") or "revision unknown")
    restarts = extra.get("restarts") or {}
    restarted = ", ".join(f"{markdown(name)} {count}×" for name, count in restarts.items()) or "none"
    digest = settings.taskset_digest or "not recorded"
    topics = ", ".join(f"`{topic.name}`" for topic in ALL)
    lag = settings.admission.max_lag
    mode = "synchronous, on-policy (max_lag 0)" if lag == 0 else f"asynchronous (max_lag {lag})"
    return f"""Continue or finish it (this one command):

    rollstream run --run-dir {base}

Read one trial: `rollstream trial {settings.run_id}/00000000/0 --run-dir {base}`.
Prove the account: `rollstream audit {base}`.

- Seeds: run {settings.seed}, task set {settings.tasks.seed}.
- Task set {code(digest)}, base checkpoint {code(settings.base_manifest or "not recorded")}.
- Mode: {mode}.
- Settings that differ from the defaults: {changed(settings) or "none"}.
- Code {revision}, Python {markdown(versions.get("python", "unknown"))}, {packages}.
- Restarted services: {restarted}.
- Topics: {topics}.

<details><summary>Configuration as used</summary>

```toml
{dump_toml(settings)}```

</details>"""


def changed(settings: RunSettings) -> str:
    """`section.key=value` of every setting that is not the default, without what preparation fills in and secrets."""
    from services.runtime.settings import Section

    skip = {"taskset_digest", "base_manifest", "run_id", "run_dir", "store", "kafka"}
    out = []
    for name, value in settings:
        field = type(settings).model_fields[name]
        default = field.get_default(call_default_factory=True)
        if name in skip or value == default:
            continue
        if isinstance(value, Section):
            out += [code(f"{name}.{key}={inner}") for key, inner in value if inner != getattr(default, key)]
        else:
            out.append(code(f"{name}={value}"))
    return ", ".join(out)


def stored_versions(folder: Path) -> dict[str, Any]:
    """The versions that the run's folder recorded at its start; else those of this process."""
    try:
        loaded = json.loads((folder / "versions.json").read_text())
    except (OSError, ValueError):
        return present_versions()
    return loaded if isinstance(loaded, dict) else present_versions()


def present_versions() -> dict[str, Any]:
    """Versions of code (git revision where there is one), interpreter and packages of this process."""
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "absent"
    return {"git": _revision(), "python": platform.python_version(), "packages": found}


def _revision() -> str | None:
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip() or None
    except (OSError, subprocess.SubprocessError):
        return None
