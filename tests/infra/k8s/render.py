"""What kustomize makes of a folder, as objects; the program is kubectl's, or the one of the optional equipment."""

from __future__ import annotations

import functools
import lzma
import os
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from services.runtime.settings import RunSettings, load
from tests.conftest import SHARED

ROOT = Path(__file__).parents[3]
K8S = ROOT / "infra" / "k8s"
OVERLAYS = sorted(p.name for p in (K8S / "overlays").iterdir() if (p / "kustomization.yaml").exists())
POD_KINDS = ("Deployment", "StatefulSet", "Job")
Object = dict[str, Any]


@functools.cache
def kustomize() -> tuple[str, ...]:
    """The command before a folder; skips where there is none."""
    unpacked = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rollstream-test/kube-1.34.3/kube"
    packed = SHARED / "kube" / "kube.xz"
    if not unpacked.exists() and packed.exists():
        unpacked.parent.mkdir(parents=True, exist_ok=True)
        beside = unpacked.with_name(f"kube.{os.getpid()}")
        with lzma.open(packed) as source, beside.open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
        beside.chmod(0o755)
        beside.replace(unpacked)
    if unpacked.exists():
        return (str(unpacked), "kubectl", "kustomize")
    if kubectl := shutil.which("kubectl"):
        return (kubectl, "kustomize")
    if alone := shutil.which("kustomize"):
        return (alone, "build")
    pytest.skip("neither kubectl nor kustomize is here")


def build(folder: Path) -> str:
    """The YAML of a folder; fails with kustomize's own words."""
    done = subprocess.run([*kustomize(), str(folder)], capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, f"{folder}: {done.stderr}"
    assert "deprecated" not in done.stderr, done.stderr
    return done.stdout


def parse(text: str) -> list[Object]:
    return [document for document in yaml.safe_load_all(text) if document]


@functools.cache
def overlay(name: str) -> tuple[Object, ...]:
    """The objects of an overlay."""
    return tuple(parse(build(K8S / "overlays" / name)))


def of_kind(objects: tuple[Object, ...] | list[Object], *kinds: str) -> list[Object]:
    return [o for o in objects if o["kind"] in kinds]


def name_of(o: Object) -> str:
    return str(o["metadata"]["name"])


def template(o: Object) -> Object:
    """The pod template of a workload."""
    found: Object = o["spec"]["template"]
    return found


def containers(o: Object) -> Iterator[Object]:
    """Every container of a workload, those that run before it too."""
    spec = template(o)["spec"]
    yield from (*spec.get("initContainers", ()), *spec["containers"])


def is_service(o: Object) -> bool:
    return bool(o["metadata"].get("labels", {}).get("app.kubernetes.io/component") == "service")


def services(objects: tuple[Object, ...]) -> dict[str, Object]:
    """Workloads of our services by name."""
    return {name_of(o): o for o in of_kind(objects, *POD_KINDS) if is_service(o)}


def run_toml(objects: tuple[Object, ...]) -> set[str]:
    """The texts of run.toml in every namespace."""
    return {o["data"]["run.toml"] for o in of_kind(objects, "ConfigMap") if "run.toml" in o["data"]}


def settings(objects: tuple[Object, ...], folder: Path) -> RunSettings:
    """The one run's settings as a pod loads them, its login aside."""
    (text,) = run_toml(objects)
    path = folder / "run.toml"
    path.write_text(text)
    login = {"kafka": {"password": "given by a Secret"}} if tomllib.loads(text)["kafka"].get("mechanism") else {}
    return load(path, **login)


def environment(o: Object) -> dict[str, Object]:
    """A service's variables by name."""
    return {e["name"]: e for e in next(c for c in containers(o) if c["name"] == "service").get("env", ())}
