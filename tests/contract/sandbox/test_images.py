"""The base image is built without a registry, and a named image holds what the staged interpreter holds."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import pytest

from services.runtime.errors import UserError
from services.runtime.jail import tree
from services.runtime.jail.backend import Options, open_backend
from services.runtime.jail.docker.image import archive
from services.runtime.settings import Isolation
from tests.contract.sandbox.asking import FETCH, ask, said, serving
from tests.services.docker_engine import ROOT

IMAGES = ROOT / "infra" / "images"


def _docker(url: str, *line: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        line, env={**os.environ, **variables, "DOCKER_HOST": url}, capture_output=True, text=True, check=False
    )


def _no_mirror() -> str:
    """Why no base image can be built here; empty when one can."""
    for tool in ("debootstrap", "docker"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed: make equipment"
    with open("/etc/os-release") as file:
        suite = re.search(r"^VERSION_CODENAME=(\S+)", file.read(), re.MULTILINE)
    if suite is None:
        return "this system does not name its suite"
    mirror = subprocess.run([IMAGES / "mirror.sh", suite[1]], capture_output=True, text=True, check=True).stdout.strip()
    if not mirror:
        return f"no apt source of {suite[1]} on this system"
    try:
        urllib.request.urlopen(f"{mirror}/dists/{suite[1]}/Release", timeout=10).close()
    except (OSError, urllib.error.URLError) as error:
        return f"the mirror {mirror} cannot be reached: {error}"
    return ""


@pytest.fixture
def image(docker_engine: str) -> Iterator[Callable[..., str]]:
    """Makes images of the staged interpreter under the name python3, with changes of their settings."""
    from docker import APIClient

    api = APIClient(base_url=docker_engine, version="auto")
    made: list[str] = []

    def make(*changes: str) -> str:
        with tempfile.TemporaryFile() as file:
            archive(tree.staged(), file, closed=False)
            file.seek(0)
            with tarfile.open(fileobj=file, mode="a") as tar:
                link = tarfile.TarInfo("python/bin/python3")
                link.type, link.linkname = tarfile.SYMTYPE, tree.PYTHON
                tar.addfile(link)
            file.seek(0)
            tag = str(len(made))
            api.import_image_from_data(
                file, repository="rollstream-tests", tag=tag, changes=["ENV PATH=/python/bin", *changes]
            )
        made.append(f"rollstream-tests:{tag}")
        return made[-1]

    yield make
    for one in made:
        api.remove_image(one, force=True)
    api.close()


def test_a_named_image_gets_the_worker_as_text_and_none_of_its_own_environment(
    image: Callable[..., str], docker_engine: str
) -> None:
    name = image("ENV SECRET=key", 'ENTRYPOINT ["/none"]', "USER 0", "WORKDIR /root-only")
    with open_backend(Isolation(backend="docker", docker_url=docker_engine, docker_image=name), 2) as host:
        host.check()
        source = "import os\ndef f(): return os.getcwd() + ' ' + ' '.join(sorted(os.environ))"
        assert set(ask(host, source).value.split()) <= {"/tmp", "HOME", "LC_CTYPE"}


def test_an_image_with_volumes_is_refused(image: Callable[..., str], docker_engine: str) -> None:
    settings = Isolation(backend="docker", docker_url=docker_engine, docker_image=image("VOLUME /data"))
    with pytest.raises(UserError, match="declares volumes"):
        open_backend(settings, 1)


def test_an_image_without_python_is_refused(image: Callable[..., str], docker_engine: str) -> None:
    settings = Isolation(backend="docker", docker_url=docker_engine, docker_image=image("ENV PATH=/lib"))
    with pytest.raises(UserError, match=r"no Python 3\.11"):
        open_backend(settings, 1)


def test_an_image_that_is_not_there_is_named(docker_engine: str) -> None:
    with pytest.raises(UserError, match="no-such-image"):
        open_backend(Isolation(backend="docker", docker_url=docker_engine, docker_image="no-such-image:1"), 1)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_images_are_built_here_and_hold(docker_engine: str) -> None:
    if why := _no_mirror():
        pytest.skip(why)
    base = _docker(docker_engine, str(IMAGES / "base.sh"), "rollstream-tests-base:local", PACKAGES="python3")
    assert base.returncode == 0, base.stdout + base.stderr
    assert "steps: " in base.stdout  # it says how far it is
    name = "rollstream-tests-sandbox:local"
    made = _docker(docker_engine, str(IMAGES / "sandbox.sh"), name, "rollstream-tests-base:local")
    assert made.returncode == 0, made.stdout + made.stderr
    with open_backend(Isolation(backend="docker", docker_url=docker_engine, docker_image=name), 2) as host:
        host.check()
        assert ask(host, "def f(a, b): return a + b", 2, 3).value == 5
        seen = ask(host, "import os\ndef f(): return ' '.join(sorted(os.environ))").value.split()
        assert set(seen) <= {"HOME", "LC_CTYPE"}
        with serving(host, Options(hosts=("127.0.0.1:1",))) as server:
            assert said(server, FETCH, "http://example.org/", "").startswith("403 ")
        source = "import os\ndef f():\n    found = os.path.exists('/tmp/left')\n    open('/tmp/left', 'w').close()\n"
        assert {ask(host, source + "    return 'found' if found else 'fresh'").value for _ in range(3)} == {"fresh"}
        hashes = [ask(host, "def f(): return str(hash('a'))", options=Options(hash_seed=s)).value for s in (1, 1, 2)]
        assert hashes[0] == hashes[1] != hashes[2]
        source = """
import os, stat
def f():
    found = []
    for folder, _, names in os.walk("/"):
        if folder.startswith(("/proc", "/sys")):
            continue
        for name in names:
            try:
                status = os.lstat(os.path.join(folder, name))
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode) and status.st_mode & 0o6000:
                found.append(name)
    return " ".join(found)
"""
        assert ask(host, source).value == ""
