"""Images hold what their service can load and nothing of what it cannot; no secret reaches a build."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import subprocess
import sys
import tomllib

import pytest

from tests.infra.images.dockerfile import IMAGES, ROOT, chain, last, parts, stages, targets
from tests.infra.images.modules import imports, path_of, reached

sys.path.insert(0, str(IMAGES))  # scripts of the build, and no package: inside it there is none of ours
import wheels

SERVICES = sorted(p.parent.name for p in (ROOT / "services").glob("*/main.py"))
PROVIDERS = importlib.metadata.packages_distributions()
HEAVY = {"torch", "transformers", "tokenizers"}
LISTS = {"light": ("light",), "jail": ("light", "jail"), "torch": ("light", "torch")}


@functools.cache
def code_of(name: str) -> tuple[set[str], set[str]]:
    """Our modules and the top-level names of other modules that a target's process can load."""
    cli = path_of("services.cli")
    assert cli is not None
    if name == "prepare":
        return reached(*imports(cli, "prepare"))
    return reached(f"services.{name}.main", *imports(cli, "up"))


def requirements(name: str) -> set[str]:
    """The lines of one list."""
    lines = (IMAGES / "requirements" / f"{name}.txt").read_text().splitlines()
    return {line for line in lines if line and not line.startswith("#")}


def kind(name: str) -> str:
    """Which libraries a target has: light, jail or torch."""
    return next((k for k in ("torch", "jail") if k in parts(name)), "light")


def test_every_service_has_a_target_that_starts_it() -> None:
    expected = {name: ["up", "--service", name] for name in SERVICES} | {"prepare": ["prepare"]}
    assert targets() == expected
    said = subprocess.run([IMAGES / "build.sh", "--list"], capture_output=True, text=True, check=True).stdout
    assert sorted(said.split()) == sorted(expected)


@pytest.mark.parametrize("name", sorted(targets()))
def test_an_image_holds_all_code_that_its_process_can_load(name: str) -> None:
    held = {part for part in parts(name) if part in {*SERVICES, "prepare"}}
    ours = [module.split(".") for module in code_of(name)[0]]
    needed = {words[1] for words in ours if words[0] in ("services", "infra") and len(words) > 1}
    assert held == needed & {*SERVICES, "prepare"}


@pytest.mark.parametrize("name", sorted(targets()))
def test_torch_lies_exactly_where_it_can_be_imported(name: str) -> None:
    assert (kind(name) == "torch") == bool(HEAVY & code_of(name)[1])


@pytest.mark.parametrize("name", sorted(targets()))
def test_an_image_holds_the_libraries_that_its_process_can_import(name: str) -> None:
    """Every import comes from a distribution that the image's lists lead to; matplotlib from none."""
    lists = [str(IMAGES / "requirements" / f"{each}.txt") for each in LISTS[kind(name)]]
    held, missing = wheels.closure(wheels.wanted(lists + ["torch"] * (kind(name) == "torch")))
    assert not missing
    assert "matplotlib" not in held
    for module in code_of(name)[1] - set(sys.stdlib_module_names):
        given = {each.lower().replace("_", "-") for each in PROVIDERS.get(module, [])}
        assert given & set(held), f"{name} can import {module}, which its image does not hold"


def test_the_lists_say_what_the_package_says() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = set(project["dependencies"]) | set(project["optional-dependencies"]["hidden-tests"])
    elsewhere = {line for line in wanted if line.startswith(("torch", "matplotlib"))}
    assert requirements("light") | requirements("jail") | requirements("torch") == wanted - elsewhere
    assert next(line for line in elsewhere if line.startswith("torch")) in (IMAGES / "Dockerfile").read_text()


@pytest.mark.parametrize("name", sorted(targets()))
def test_an_image_runs_without_root_and_without_a_shell(name: str) -> None:
    assert last(name, "USER") == "10001:10001"
    assert isinstance(json.loads(last(name, "ENTRYPOINT")), list)
    assert (IMAGES / "rollstream").stat().st_mode & 0o111, "the entry point is a program"
    labels = " ".join(rest for stage in chain(name) for word, rest in stage.steps if word == "LABEL")
    assert f"Rollstream {name}:" in labels
    assert "org.opencontainers.image.title" in labels


def test_jails_have_their_tools() -> None:
    for name in ("sandbox", "verifier"):
        commands = " ".join(rest for stage in chain(name) for word, rest in stage.steps if word == "RUN")
        assert "bubblewrap" in commands
        assert "libseccomp2" in commands


def test_only_what_is_copied_enters_a_build() -> None:
    """Everything is shut out by default; what is let in is what the Dockerfile copies, and no key among it."""
    lines = [x for x in (ROOT / ".dockerignore").read_text().splitlines() if x and not x.startswith("#")]
    assert lines[0] == "*"
    let_in = {line[1:] for line in lines if line.startswith("!")}
    copied = {
        source
        for stage in stages().values()
        for word, rest in stage.steps
        if word == "COPY" and "--from=" not in rest
        for source in rest.split()[:-1]
    }
    assert {s for s in copied if not any(s == each or s.startswith(f"{each}/") for each in let_in)} == set()
    assert {s for s in let_in if not any(s == each or each.startswith(f"{s}/") for each in copied)} == set()
    assert not {".git", "runs", ".env", ".venv"} & {each.split("/")[0] for each in let_in}
    assert {"**/.env*", "**/*.key", "**/*.pem"} <= set(lines)
