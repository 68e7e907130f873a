"""Images without torch are built from nothing without network, and start under a careful cluster's rules."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.infra.images.built import Images, check_contents, check_description, check_start, check_wait
from tests.infra.images.dockerfile import IMAGES, ROOT, parts, targets
from tests.services.docker_engine import private_engine

LIGHT = sorted(name for name in targets() if "torch" not in parts(name))
BORROWED, TAG = "ROLLSTREAM_TEST_IMAGES", "ROLLSTREAM_TEST_TAG"
"""Environment variables for whoever has images already: the address of their engine, and their tag."""
EDITED, SENT = "edited", "sent"
"""Tag and name of what is built beside them, and removed again."""
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


def build(url: str, script: str, *words: str) -> str:
    """Run one of the scripts. Returns what it printed."""
    said = subprocess.run(
        [IMAGES / script, *words], env={**os.environ, "DOCKER_HOST": url}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert said.returncode == 0, said.stdout[-3000:]
    return said.stdout


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Images]:
    """The images of services without torch."""
    if url := os.environ.get(BORROWED):
        borrowed = Images(url, os.environ.get(TAG, "dev"))
        yield borrowed
        borrowed.docker("rmi", "--force", SENT, *(f"rollstream-{name}:{EDITED}" for name in ("closure", "admission")))
        return
    with private_engine(tmp_path_factory.mktemp("images") / "engine") as engine:
        build(engine.url, "base.sh")
        build(engine.url, "wheels.sh")
        said = build(engine.url, "build.sh", "--tag", "test", *LIGHT)
        assert all(f"rollstream-{name}:test" in said for name in LIGHT)
        yield Images(engine.url, "test")


@pytest.mark.parametrize("name", LIGHT)
def test_an_image_is_small_and_says_what_it_is(images: Images, name: str) -> None:
    check_description(images, name)


@pytest.mark.parametrize("name", LIGHT)
def test_an_image_starts_without_root_rights_or_a_writable_disk(images: Images, name: str) -> None:
    check_start(images, name)
    check_wait(images, name)


@pytest.mark.parametrize("name", LIGHT)
def test_an_image_holds_what_it_needs_and_no_more(images: Images, name: str) -> None:
    check_contents(images, name)


def test_an_edit_in_one_service_leaves_the_layers_of_others(images: Images, tmp_path: Path) -> None:
    """What is deployed alone changes alone: of the other images not a byte is sent again."""
    copy = tmp_path / "repository"
    copy.mkdir()
    for word in ("schemas", "services", "infra", ".dockerignore", "pyproject.toml"):
        subprocess.run(["cp", "-r", ROOT / word, copy], check=True)
    edited = copy / "services" / "closure" / "core.py"
    edited.write_text(edited.read_text() + "\nEDITED = True\n")
    subprocess.run(
        [copy / "infra" / "images" / "build.sh", "--tag", EDITED, "closure", "admission"],
        env={**os.environ, "DOCKER_HOST": images.url}, check=True, capture_output=True,
    )  # fmt: skip
    before, after = (
        {name: which.inspect(name)["RootFS"]["Layers"] for name in ("closure", "admission")}
        for which in (images, Images(images.url, EDITED))
    )
    assert after["admission"] == before["admission"]
    assert after["closure"][:-1] == before["closure"][:-1]
    assert after["closure"][-1] != before["closure"][-1]


def test_no_key_and_nothing_of_git_reaches_the_engine(images: Images, tmp_path: Path) -> None:
    """A build of everything that the engine was sent holds none of what was planted."""
    planted = (".git/config", ".env", "services/.env.local", "services/runtime/tls.key", "runs/a/run.toml", "id.pem")
    for word in (*planted, "services/cli.py"):
        (tmp_path / word).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / word).write_text("x")
    (tmp_path / ".dockerignore").write_bytes((ROOT / ".dockerignore").read_bytes())
    (tmp_path / "Dockerfile").write_text("FROM rollstream-base:local\nCOPY . /sent\n")
    assert images.docker("build", "--tag", SENT, str(tmp_path)).returncode == 0
    said = images.docker("run", "--rm", "--network", "none", SENT, "find", "/sent", "-type", "f")
    assert said.stdout.split() == ["/sent/services/cli.py"]
