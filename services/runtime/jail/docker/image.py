"""The images that containers run on: the staged interpreter, put into the engine once, or one that the user names."""

from __future__ import annotations

import contextlib
import json
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from services.runtime.errors import UserError
from services.runtime.jail import tree
from services.runtime.jail.backend import Runtime
from services.runtime.jail.limits import JailFault

REPOSITORY = "rollstream-jail"
LABEL = "rollstream.jail.image"
_OLDEST = (3, 11)


@dataclass(frozen=True)
class Image:
    """`name`: what the engine knows it by. `python` and `worker` are the command's first and last part.

    `variables`: names in its environment, which containers must not get.
    """

    name: str
    python: str
    worker: tuple[str, ...]
    variables: tuple[str, ...] = ()


def archive(root: Path, target: IO[bytes], closed: bool = True) -> None:
    """The tree as tar, the same bytes for the same tree: sorted, owned by root.

    `closed`: its interpreter can be run but not read.
    """
    with tarfile.open(fileobj=target, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for path in [root, *sorted(root.rglob("*"))]:
            entry = tar.gettarinfo(path, arcname=str(path.relative_to(root)))
            if entry.islnk():  # the same file twice in the tree: tar would name the one met first
                entry.type, entry.linkname, entry.size = tarfile.REGTYPE, "", path.stat().st_size
            entry.uid = entry.gid = 0
            # Compiled modules are valid for the time of their source; with another, each start would compile anew.
            entry.mtime = int(path.stat().st_mtime) if entry.isreg() else 0
            entry.uname = entry.gname = ""
            if closed and entry.name == tree.PYTHON.lstrip("/"):
                # Who runs a program that he cannot read has processes whose memory /proc does not open, not even to
                # each other: a candidate cannot write into the fork server that started it and will start the next.
                entry.mode = 0o711
            if entry.isreg():
                with path.open("rb") as file:
                    tar.addfile(entry, file)
            else:
                tar.addfile(entry)


def staged(api: Any, runtime: Runtime, closed: bool) -> Image:
    """The staged interpreter as an image, imported when the engine lacks it. Raises UserError, JailFault."""
    from docker.errors import DockerException, ImageNotFound

    root = tree.staged(runtime)
    kind = runtime if closed else f"{runtime}-open"
    tag = root.name if closed else f"{root.name}-open"
    name = f"{REPOSITORY}:{tag}"
    try:
        try:
            api.inspect_image(name)
        except ImageNotFound:
            with tempfile.TemporaryFile() as file:
                archive(root, file, closed)
                file.seek(0)
                said = api.import_image_from_data(
                    file, repository=REPOSITORY, tag=tag, changes=[f'LABEL {LABEL}="{kind}"']
                )
            if '"error"' in said:
                raise JailFault(f"the engine did not take the interpreter: {said.strip()[-300:]}") from None
            _remove_older(api, kind, name)
    except DockerException as error:
        raise JailFault(f"the engine did not take the interpreter: {error}") from error
    return Image(name, tree.PYTHON, (tree.WORKER,))


def _remove_older(api: Any, kind: str, keep: str) -> None:
    from docker.errors import APIError

    for image in api.images(filters={"label": f"{LABEL}={kind}"}):
        if keep not in (image["RepoTags"] or []):
            with contextlib.suppress(APIError):  # in use by a container of another version
                api.remove_image(image["Id"])


def named(api: Any, name: str, run: Any) -> Image:
    """A user's image. `run(image, argv)`: output of a container of it. Raises UserError, JailFault.

    The worker travels as text in the command, because nothing of the host is mounted.
    """
    from docker.errors import DockerException, ImageNotFound

    try:
        found = api.inspect_image(name)
    except ImageNotFound as error:
        raise UserError(
            "the sandbox's image is not there",
            f"isolation.docker_image = {name}",
            "build or pull it, or leave it empty",
        ) from error
    except DockerException as error:
        raise JailFault(f"the engine does not tell about the image: {error}") from error
    config = found.get("Config") or {}
    if config.get("Volumes"):
        raise UserError(
            "the sandbox's image declares volumes, which candidates could write to without a bound",
            f"isolation.docker_image = {name}: {', '.join(config['Volumes'])}",
            "use an image without VOLUME",
        )
    variables = tuple(item.partition("=")[0] for item in config.get("Env") or ())
    question = "import json, sys; print(json.dumps([sys.executable, sys.version_info[:2]]))"
    said = run(Image(found["Id"], "python3", (), tuple(v for v in variables if v != "PATH")), question)
    try:
        python, version = json.loads(said)
    except ValueError:
        python, version = "", [0, 0]
    if tuple(version) < _OLDEST or not python:
        answer = said.strip()[-200:] or "no answer"
        raise UserError(
            f"the sandbox's image has no Python {_OLDEST[0]}.{_OLDEST[1]} or newer ({answer})",
            f"isolation.docker_image = {name}",
            "use an image with python3 on its PATH",
        )
    return Image(found["Id"], python, ("-c", tree.worker_source("network").decode()), variables)
