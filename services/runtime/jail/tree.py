"""Stages the interpreter that runs inside jails: one read-only tree with exactly the files that it needs.

A jail sees this tree as its whole root: no shell, no tools, no set-user-id program, no site-packages, no network
modules, and none of the host's paths (the interpreter may live below a folder that only root can enter).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from services.runtime.errors import UserError

PYTHON = f"/python/bin/python{sys.version_info.major}.{sys.version_info.minor}"
WORKER = "/worker.pyc"
SECRET = "/root-only"
"""A file of this name lies in the tree, readable by its owner only: the self-test checks that a jail cannot read it."""

_LEFT_OUT = {
    "site-packages", "dist-packages", "test", "tests", "idlelib", "tkinter", "ensurepip", "turtledemo", "lib2to3",
    "distutils", "pydoc_data", "curses", "sqlite3", "venv", "wsgiref", "dbm", "msilib",
}  # fmt: skip
_DYNLOAD_LEFT_OUT = re.compile(
    r"^(_test|_xx|xx|_ctypes_test|_tkinter|_curses|readline|_sqlite3|_ssl|_socket|nis|spwd|grp|_crypt|ossaudiodev|syslog|"
    r"_dbm|_gdbm|termios|_lsprof|audioop|_multiprocessing|_posixshmem)"
)


def _files() -> list[tuple[str, Path]]:
    """(path in the tree, source on the host) of interpreter and standard library."""
    library = Path(sysconfig.get_path("stdlib"))
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
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
            found.append((f"python/lib/{version}/{source.relative_to(library)}", source))
    return found


def _shared_objects(files: list[tuple[str, Path]]) -> list[tuple[str, Path]]:
    """Shared libraries of the interpreter and its extension modules, from the dynamic loader itself."""
    binaries = [source for at, source in files if at.startswith("python/bin/") or source.suffix == ".so"]
    try:
        text = subprocess.run(
            ["ldd", *map(str, binaries)], capture_output=True, text=True, check=True, env={"LC_ALL": "C"}
        ).stdout
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
    seen = hashlib.sha256(f"tree/1 {sys.version} {sys.base_prefix}".encode() + worker)
    for at, source in files:
        stat = source.stat()
        seen.update(f"{at} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return seen.hexdigest()[:24]


def cache_folder() -> Path:
    """A folder of ours that other users can enter but not write. Raises UserError."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    places = [Path("/var/lib/rollstream")] if os.geteuid() == 0 else [home / "rollstream"]
    places.append(Path(tempfile.gettempdir()) / f"rollstream-{os.geteuid()}")
    for place in places:
        with contextlib.suppress(OSError):
            place.mkdir(mode=0o755, parents=True, exist_ok=True)
            stat = place.lstat()
            if stat.st_uid == os.geteuid() and not stat.st_mode & 0o022 and os.access(place, os.W_OK):
                return place
    raise UserError(
        "no folder for the sandbox's interpreter can be made",
        ", ".join(map(str, places)),
        "make one of these folders, owned by this user and writable by nobody else",
    )


def staged() -> Path:
    """The staged tree for this interpreter, made when it is not there yet. Raises UserError."""
    worker = Path(__file__).with_name("worker.py").read_bytes()
    files = _files()
    target = cache_folder() / f"jail-{_digest(files, worker)}"
    if target.is_dir():
        return target
    building = Path(tempfile.mkdtemp(prefix="building-", dir=target.parent))
    try:
        for at, source in files + _shared_objects(files):
            _place(source, building / at)
        _finish(building, worker)
        with contextlib.suppress(OSError):  # another service was faster
            building.rename(target)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    if not target.is_dir():
        raise UserError("the sandbox's interpreter could not be staged", str(target), "check that the disk is not full")
    return target


def _place(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    real = Path(os.path.realpath(source))
    with contextlib.suppress(OSError):  # links cost no disk; another file system or closed permissions need a copy
        stat = real.stat()
        if stat.st_mode & 0o444 == 0o444 and not stat.st_mode & 0o6000:
            os.link(real, target)
            return
    shutil.copyfile(real, target)
    stat = real.stat()
    os.utime(target, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    target.chmod(0o755 if stat.st_mode & 0o100 else 0o644)


def _finish(building: Path, worker: bytes) -> None:
    import importlib.util
    import marshal

    (building / "tmp").mkdir()
    code = compile(worker, "worker", "exec", dont_inherit=True, optimize=2)
    header = importlib.util.MAGIC_NUMBER + (0).to_bytes(4, "little") + bytes(8)
    (building / WORKER.lstrip("/")).write_bytes(header + marshal.dumps(code))
    secret = building / SECRET.lstrip("/")
    secret.write_text("only the owner may read this\n")
    secret.chmod(0o600)
    for folder, _, _ in os.walk(building):
        os.chmod(folder, 0o755)
