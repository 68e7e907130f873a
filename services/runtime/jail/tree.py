"""Stages the interpreter that runs inside jails: one read-only tree with exactly the files that it needs.

A jail sees this tree as its whole root: no shell, no tools, no set-user-id program, no site-packages, and none of the
host's paths (the interpreter may live below a folder that only root can enter). The standard library is whole but for
its own tests, its editor and the wheels of pip: what a program may not do, the kernel refuses. There is one tree per
kind of runtime, made when it is first asked for: "pytest" holds pytest too, "network" this machine's certificates of
authorities, so that declared hosts can be reached over TLS.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from services.runtime import scratch
from services.runtime.errors import UserError
from services.runtime.jail.instance import temporary
from services.runtime.scratch import Scratch

if TYPE_CHECKING:
    from services.runtime.jail.backend import Runtime

PYTHON = f"/python/bin/python{sys.version_info.major}.{sys.version_info.minor}"
WORKER = "/worker.pyc"
SECRET = "/root-only"
"""A file of this name lies in the tree, readable by its owner only: the self-test checks that a jail cannot read it."""

PROXY = "/proxy"
"""An empty file in the network tree, over which the socket of a proxy is mounted for jails that have hosts."""

_LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idlelib", "_bundled"}
_DYNLOAD_LEFT_OUT = re.compile(r"^(_test|_xxtest|xxlimited|_ctypes_test)")
_BUNDLES = (Path("/etc/ssl/certs/ca-certificates.crt"), Path("/etc/pki/tls/certs/ca-bundle.crt"))
_BUILDING, _TREE = "building-", "jail-"
_KEPT_S = 7 * 86_400.0
_SPACE_MB = 250
_PYTEST = ("pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging")
_LIBRARY = f"python/lib/python{sys.version_info.major}.{sys.version_info.minor}"


def _files(runtime: Runtime) -> list[tuple[str, Path]]:
    """(path in the tree, source on the host) of interpreter, standard library, and what the runtime adds."""
    library = Path(sysconfig.get_path("stdlib"))
    binary = Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))
    found = [(PYTHON.lstrip("/"), binary)]
    for folder, names, files in os.walk(library):
        top = Path(folder) == library
        names[:] = sorted(n for n in names if n not in _LEFT_OUT and not n.startswith("config-"))
        for name in sorted(files):
            source = Path(folder) / name
            if source.parent.name == "lib-dynload" and _DYNLOAD_LEFT_OUT.match(name):
                continue
            if ".opt-" in name or (top and name == "LICENSE.txt") or not source.is_file():
                continue
            found.append((f"{_LIBRARY}/{source.relative_to(library)}", source))
    return found + {"plain": list, "pytest": _pytest_files, "network": _authorities}[runtime]()


def _authorities() -> list[tuple[str, Path]]:
    """This machine's certificates of authorities where OpenSSL looks for them; nothing where it has none."""
    import ssl

    at = ssl.get_default_verify_paths().openssl_cafile
    for source in (Path(at), *_BUNDLES):
        if source.is_file():
            return [(at.lstrip("/"), source)]
    return []


def _pytest_files() -> list[tuple[str, Path]]:
    """pytest and what it imports, beside the standard library: a jail has no site-packages on its path."""
    import importlib.metadata
    import importlib.util

    wanted = list(_PYTEST)
    try:
        needed = importlib.metadata.requires("pytest") or []
        if any(line.lower().startswith("pygments") and "extra" not in line for line in needed):
            wanted.append("pygments")
        specs = [(name, importlib.util.find_spec(name)) for name in wanted]
    except importlib.metadata.PackageNotFoundError:
        specs = [("pytest", None)]
    found = []
    for name, spec in specs:
        if spec is None or spec.origin is None:
            raise UserError(
                f"{name} is not installed, so no sandbox can run pytest", sys.prefix, "install the package's test extra"
            )
        home = Path(spec.origin).parent
        if spec.submodule_search_locations is None:
            found.append((f"{_LIBRARY}/{Path(spec.origin).name}", Path(spec.origin)))
            continue
        for folder, names, files in os.walk(home):
            names[:] = sorted(n for n in names if n != "__pycache__")
            found += [
                (f"{_LIBRARY}/{name}/{(Path(folder) / file).relative_to(home)}", Path(folder) / file)
                for file in sorted(files)
                if file.endswith(".py")
            ]
    return found


def _shared_objects(files: list[tuple[str, Path]]) -> list[tuple[str, Path]]:
    """Shared libraries of the interpreter and its extension modules, from the dynamic loader itself."""
    binaries = [source for at, source in files if at.startswith("python/bin/") or source.suffix == ".so"]
    # The folders that this interpreter itself was told to look in, and nothing else of the environment.
    env = {"LC_ALL": "C", "LD_LIBRARY_PATH": os.environ.get("LD_LIBRARY_PATH", "")}
    try:
        text = subprocess.run(["ldd", *map(str, binaries)], capture_output=True, text=True, check=True, env=env).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise UserError(
            f"the interpreter's libraries cannot be listed: {error}", str(binaries[0]), "install libc-bin"
        ) from error
    named = dict(re.findall(r"^\s+(\S+) => (/\S+) \(", text, re.MULTILINE))
    loader = set(re.findall(r"^\s+(/\S+) \(", text, re.MULTILINE))
    if "libc.so.6" not in named:
        raise UserError("the interpreter is not linked with the GNU C library", str(binaries[0]), "use a glibc Python")
    system = os.path.dirname(named["libc.so.6"])  # the dynamic loader searches this folder without being told
    own = os.path.realpath(sys.base_prefix) + "/"
    found = []
    for name, path in sorted(named.items()):
        at = f"{system}/{name}" if os.path.realpath(path).startswith(own) and own != "/usr/" else path
        found.append((at.lstrip("/"), Path(path)))
    return found + [(path.lstrip("/"), Path(path)) for path in sorted(loader)]


def _digest(files: list[tuple[str, Path]], worker: bytes) -> str:
    seen = hashlib.sha256(f"tree/5 {sys.version} {sys.base_prefix}".encode() + worker)
    for at, source in files:
        stat = source.stat()
        seen.update(f"{at} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return seen.hexdigest()[:24]


def cache_folder() -> Path:
    """A folder of ours that other users can enter but not write. Raises UserError with what is wrong with each place.

    One from which programs may be run goes before one from which they may not, which serves whoever copies from it.
    """
    refused, closed, places = list[str](), list[Path](), list[Path]()
    try:
        for place in _places():
            places.append(place)
    except UserError as error:
        refused.append(error.what)
    for place in places:
        why = _unfit(place)
        if why:
            refused.append(f"{place}: {why}")
        elif _noexec(place):
            closed.append(place)
        else:
            return place
    if closed:
        return closed[0]
    also = "" if os.geteuid() == 0 else ", or set XDG_CACHE_HOME to one"
    raise UserError(
        "no folder for the sandbox's interpreter can be made",
        "; ".join(refused),
        f"make one of these folders, owned by user {os.geteuid()} and writable by nobody else{also}",
    )


def _places() -> Iterator[Path]:
    if os.geteuid() == 0:
        yield Path("/var/lib/rollstream")
    else:
        named = Path(os.environ.get("XDG_CACHE_HOME", ""))
        with contextlib.suppress(RuntimeError):  # no HOME, and a user that this system does not know
            named = named if named.is_absolute() else Path.home() / ".cache"
        if named.is_absolute():
            yield named / "rollstream"
    yield temporary() / f"rollstream-{os.geteuid()}"


def _unfit(place: Path) -> str:
    """Why a folder cannot be the cache, which is made where it can be; "": it is one."""
    try:
        if not place.exists():
            place.mkdir(parents=True)
        stat = place.lstat()
        if stat.st_uid != os.geteuid():
            return f"it belongs to user {stat.st_uid}"
        if stat.st_mode & 0o022:
            return "others can write to it"
        if stat.st_mode & 0o555 != 0o555:
            place.chmod(0o755)  # made under a umask that lets nobody else enter
        os.rmdir(tempfile.mkdtemp(prefix=_BUILDING, dir=place))
    except OSError as error:
        return error.strerror or str(error)
    closed = [str(one) for one in place.parents if os.geteuid() == 0 and not one.stat().st_mode & 0o001]
    return f"the sandbox's users cannot enter {closed[0]}" if closed else ""


def _noexec(place: Path) -> bool:
    return bool(os.statvfs(place).f_flag & os.ST_NOEXEC)


def worker_source(runtime: Runtime = "plain") -> bytes:
    """The script that runs in a jail: all parts of it as one text."""
    parts = ("encoder.py", "forwarder.py", "worker.py") if runtime == "network" else ("encoder.py", "worker.py")
    return b"\n\n".join(Path(__file__).with_name(name).read_bytes() for name in parts)


def sweep() -> None:
    """Remove what processes that died while they were staging have left, and trees that nobody has asked for lately."""
    scratch.sweep(cache_folder())
    for folder in cache_folder().glob(f"{_TREE}*"):
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > _KEPT_S:
                shutil.rmtree(folder, ignore_errors=True)


def staged(runtime: Runtime = "plain") -> Path:
    """The staged tree for this interpreter, made when it is not there yet. Raises UserError."""
    worker = worker_source(runtime)
    files = _files(runtime)
    target = cache_folder() / f"{_TREE}{_digest(files, worker)}"
    with contextlib.suppress(FileNotFoundError):
        os.utime(target)
        return target
    with explained(target.parent), Scratch("building", target.parent) as building:
        for at, source in files + _shared_objects(files):
            _place(source, building / at)
        if runtime == "network":
            (building / PROXY.lstrip("/")).touch(0o444)
        _finish(building, worker)
        with contextlib.suppress(OSError):  # another service was faster
            building.rename(target)
    if not target.is_dir():
        raise UserError("the sandbox's interpreter could not be staged", str(target), "remove what is there")
    return target


def copied(runtime: Runtime, folder: Path) -> Path:
    """A copy of the staged tree below `folder` that programs can be run from. Raises UserError."""
    source = staged(runtime)
    target = folder / source.name
    if _noexec(folder.parent):
        also = "" if os.geteuid() == 0 else ", or set XDG_CACHE_HOME to a folder of another"
        raise UserError(
            "no program may be run from the folder of the sandbox's interpreter (noexec)",
            str(folder.parent),
            f"mount this file system without noexec{also}",
        )
    if not target.is_dir():
        with explained(folder):
            folder.mkdir(exist_ok=True)
            folder.chmod(0o755)
            shutil.copytree(source, folder / _BUILDING, symlinks=True)
            (folder / _BUILDING).rename(target)
    return target


@contextlib.contextmanager
def explained(folder: Path) -> Iterator[None]:
    """What cannot be written there, in words. Raises UserError."""
    try:
        yield
    except OSError as error:
        numbers = (errno.ENOSPC, errno.EDQUOT)
        full = error.errno in numbers or any(f"[Errno {one}]" in str(error) for one in numbers)  # of many files: a list
        also = "" if os.geteuid() == 0 else ", or set XDG_CACHE_HOME to a folder of another"
        raise UserError(
            "the sandbox's interpreter could not be written: "
            + ("no space is left" if full else error.strerror or str(error)),
            str(folder),
            f"free {_SPACE_MB} MB on this file system{also}" if full else f"let user {os.geteuid()} write there{also}",
        ) from error


def _place(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    real = Path(os.path.realpath(source))
    shutil.copyfile(real, target)  # never a link: what runs on the host would share the inode with what runs in jails
    stat = real.stat()
    os.utime(target, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    target.chmod(0o755 if stat.st_mode & 0o100 else 0o644)


def _finish(building: Path, worker: bytes) -> None:
    import importlib.util
    import marshal
    import py_compile

    (building / "tmp").mkdir()
    (building / "dev").mkdir()
    (building / "dev" / "shm").symlink_to("/tmp")  # where libc looks for semaphores that processes share
    for source in building.glob(f"{_LIBRARY}/**/*.py"):  # nothing can be written there later
        cached = Path(importlib.util.cache_from_source(str(source)))
        if not cached.exists():
            with contextlib.suppress(py_compile.PyCompileError):  # lib2to3 and the like hold files of other grammars
                py_compile.compile(
                    str(source), str(cached), f"/{source.relative_to(building)}", doraise=True,
                    invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
                )  # fmt: skip
    code = compile(worker, "worker", "exec", dont_inherit=True, optimize=2)
    header = importlib.util.MAGIC_NUMBER + (0).to_bytes(4, "little") + bytes(8)
    (building / WORKER.lstrip("/")).write_bytes(header + marshal.dumps(code))
    secret = building / SECRET.lstrip("/")
    secret.write_text("only the owner may read this\n")
    for folder, _, names in os.walk(building):  # whatever the umask is
        os.chmod(folder, 0o755)
        for at in (Path(folder, name) for name in names):
            if not at.is_symlink():
                at.chmod(at.stat().st_mode & 0o755 | 0o444)
    secret.chmod(0o600)
