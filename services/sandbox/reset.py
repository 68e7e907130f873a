"""Puts a warm jail back into the state in which it started, and proves it from outside before anybody uses it again.

Candidate code ran in that jail, so nothing inside is asked: its processes are counted by the kernel, its fork server is
compared with what `/proc` said of it at the start, and its files are read through a folder descriptor that was opened
before any candidate code ran. The files' first repair goes by what changed (inode and change time); the proof reads
everything. Only jails whose mounts are ours can be reset; all others are used by one workspace and thrown away.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Iterator, Mapping
from typing import Literal

from services.runtime.jail.fixtures import folders_of
from services.runtime.jail.running import BubblewrapJail
from services.runtime.jail.session import Server

MAX_DEPTH = 32
TREE = "tree"
_STATUS = ("Threads", "SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt", "Uid", "Gid", "Groups", "NoNewPrivs", "Seccomp",
           "Seccomp_filters", "Cpus_allowed", "Mems_allowed", "CapEff", "Umask")  # fmt: skip
_STAT = (18, 19, 40, 41)
"""Fields of /proc/PID/stat: priority, nice, real-time priority, policy."""
_F_GETPIPE_SZ = 1032
_FILE, _FOLDER, _TMP = 0o666, 0o777, 0o700

Outcome = Literal["clean", "broken", "unexplained"]
"""`broken`: what candidates can bring about, so the jail is thrown away; `unexplained`: a repair that did not hold."""


class Deviates(Exception):
    """Something that no repair here undoes; the message names it."""


class Warm:
    """A booted fork server with what it looked like before any candidate code ran."""

    def __init__(
        self, server: Server, files: Mapping[str, str], key: str, compare: bool = True, hosts: tuple[str, ...] = ()
    ) -> None:
        """`files`: the tree that its jail shows; `key`: what that tree is known by ("" without one); `compare`: look at
        it now, so that it can be reset later; `hosts`: what it reaches for as long as it lives."""
        self.server = server
        self.key = key
        self.hosts = hosts
        self.files = files
        self.runs = 0
        self.problem = ""
        self._folders = folders_of(files)
        self._contents = {path: text.encode() for path, text in files.items()}
        self._inside: dict[str, set[str]] = {}  # folder ("" or with a slash at its end) -> names in it
        for path in (*files, *self._folders):
            folder, slash, name = path.rpartition("/")
            self._inside.setdefault(folder + slash, set()).add(name)
        self._seen: dict[str, tuple[int, ...]] = {}
        self._uid = server.jail.uid if isinstance(server.jail, BubblewrapJail) else -1
        self._fd = self._open() if compare else -1
        self._before = self._server_state() if self._fd >= 0 and not self._differences() else None

    @property
    def ours(self) -> bool:
        """Whether its host's jails can be looked into from here at all."""
        jail = self.server.jail
        return isinstance(jail, BubblewrapJail) and jail.private

    @property
    def resettable(self) -> bool:
        """Whether its state can be compared and put back from here."""
        return self._before is not None

    def close(self) -> None:
        """End the jail."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
        self.server.jail.close()

    def reset(self) -> Outcome:
        """Back to the start, proved. Any outcome but `clean`: close it."""
        if not self.resettable or not self.server.usable:
            return "broken"
        jail = self.server.jail
        assert isinstance(jail, BubblewrapJail)
        try:
            self._alone(jail)
            self._repair(trust_times=True)
            if self._differences():
                self._repair(trust_times=False)  # contents can change under old times, through a shared mapping
                left = self._differences()
                if left:
                    jail.condemn()
                    self.problem = "; ".join(left[:3])
                    return "unexplained"
        except (Deviates, OSError) as error:
            self.problem = str(error)
            return "broken"
        self.runs = 0
        return "clean"

    # -- processes and pipes -----------------------------------------------------------------------------------------

    def _open(self) -> int:
        """The jail's /tmp as a descriptor of this process, or -1. A number used anew must not lead somewhere else."""
        jail = self.server.jail
        inner = jail.inner_pid if isinstance(jail, BubblewrapJail) and jail.private else None
        if inner is None:
            return -1
        try:
            fd = os.open(f"/proc/{inner}/root/tmp", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return -1
        assert isinstance(jail, BubblewrapJail)
        if os.fstat(fd).st_uid == jail.uid and jail.inner_pid == inner:
            return fd
        os.close(fd)
        return -1

    def _alone(self, jail: BubblewrapJail) -> None:
        inner = jail.inner_pid
        if inner is None:
            raise Deviates("its fork server is gone")
        if jail.members() - {jail.pid, inner} or _children(inner):
            raise Deviates("processes are left")
        if not self.server.quiet:
            raise Deviates("something is left in its pipes")
        if self._server_state() != self._before:
            raise Deviates("its fork server is not as it was")

    def _server_state(self) -> tuple[object, ...] | None:
        """All of the fork server that others of its user could have changed: signals, limits, descriptors, priority."""
        jail = self.server.jail
        inner = jail.inner_pid if isinstance(jail, BubblewrapJail) else None
        if inner is None:
            return None
        try:
            status = dict(line.split(":", 1) for line in _read(f"/proc/{inner}/status").splitlines())
            fields = _read(f"/proc/{inner}/stat").rsplit(")", 1)[1].split()
            return (
                inner,
                tuple(status.get(name) for name in _STATUS),
                tuple(fields[number - 3] for number in _STAT),
                _read(f"/proc/{inner}/limits"),
                _read(f"/proc/{inner}/oom_score_adj"),
                os.readlink(f"/proc/{inner}/cwd"),
                tuple((fd, _read(f"/proc/{inner}/fdinfo/{fd}")) for fd in sorted(os.listdir(f"/proc/{inner}/fd"))),
                tuple(fcntl.fcntl(fd, _F_GETPIPE_SZ) for fd in (jail.requests, jail.replies, jail.log)),
            )
        except (OSError, ValueError, IndexError):
            return None

    # -- files -------------------------------------------------------------------------------------------------------

    def _repair(self, trust_times: bool) -> None:
        """Remove what does not belong, write anew what changed. Raises Deviates and OSError."""
        self._mend_folder(self._fd, _TMP, self._uid)
        if not self.key:
            for name in os.listdir(self._fd):
                _remove(self._fd, name, 0)
            return
        for name in os.listdir(self._fd):
            if name != TREE:
                _remove(self._fd, name, 0)
        with _folder(self._fd, TREE) as fd:
            self._repair_folder(fd, "", trust_times)

    def _repair_folder(self, at: int, inside: str, trust_times: bool) -> None:
        self._mend_folder(at, _FOLDER, os.geteuid())
        wanted = set(self._inside.get(inside, ()))
        for name in os.listdir(at):
            path = inside + name
            status = os.stat(name, dir_fd=at, follow_symlinks=False)
            if path in self.files and stat.S_ISREG(status.st_mode):
                if trust_times and self._seen.get(path) == _identity(status):
                    wanted.discard(name)
                    continue
            elif path in self._folders and stat.S_ISDIR(status.st_mode):
                continue
            _remove(at, name, 0)
        for name in wanted:
            path = inside + name
            if path in self.files:
                _write(at, name, self._contents[path])
            else:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, dir_fd=at)
                with _folder(at, name) as fd:
                    self._repair_folder(fd, path + "/", trust_times)

    def _mend_folder(self, fd: int, mode: int, uid: int) -> None:
        if os.listxattr(fd):
            raise Deviates("a folder has extended attributes")
        status = os.fstat(fd)
        if (status.st_uid, status.st_gid) != (uid, uid):
            os.fchown(fd, uid, uid)
        if status.st_mode & 0o7777 != mode:
            os.fchmod(fd, mode)

    def _differences(self) -> list[str]:
        """Every way in which the jail's /tmp is not as it started; reads all contents."""
        found = self._folder_differences(self._fd, _TMP, self._uid, "/tmp")
        names = os.listdir(self._fd)
        if names != ([TREE] if self.key else []):
            return [*found, f"/tmp holds {names[:5]}"]
        if self.key:
            left, folders = dict(self._contents), set(self._folders)
            with _folder(self._fd, TREE) as fd:
                found += self._tree_differences(fd, "", left, folders)
            found += [f"{path} is missing" for path in (*left, *folders)]
        return found

    def _tree_differences(self, at: int, inside: str, left: dict[str, bytes], folders: set[str]) -> list[str]:
        found = self._folder_differences(at, _FOLDER, os.geteuid(), inside or TREE)
        for name in os.listdir(at):
            path = inside + name
            if path in left:
                content = left.pop(path)
                fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
                try:
                    status = os.fstat(fd)
                    right = stat.S_ISREG(status.st_mode) and status.st_mode & 0o7777 == _FILE and status.st_nlink == 1
                    right = right and status.st_uid == os.geteuid()
                    same = right and status.st_size == len(content) and os.read(fd, len(content) + 1) == content
                    if not same or os.listxattr(fd):
                        found.append(f"{path} differs")
                    self._seen[path] = _identity(status)
                finally:
                    os.close(fd)
            elif path in folders:
                folders.discard(path)
                with _folder(at, name) as fd:
                    found += self._tree_differences(fd, path + "/", left, folders)
            else:
                found.append(f"{path} does not belong")
        return found

    def _folder_differences(self, fd: int, mode: int, uid: int, name: str) -> list[str]:
        status = os.fstat(fd)
        right = (status.st_mode & 0o7777, status.st_uid, status.st_gid) == (mode, uid, uid)
        return [] if right and not os.listxattr(fd) else [f"{name} has another mode, owner or attributes"]


@contextlib.contextmanager
def _folder(at: int, name: str) -> Iterator[int]:
    fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    try:
        yield fd
    finally:
        os.close(fd)


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return (
        status.st_dev, status.st_ino, status.st_mode, status.st_nlink, status.st_uid, status.st_gid, status.st_size,
        status.st_mtime_ns, status.st_ctime_ns,
    )  # fmt: skip


def _remove(at: int, name: str, depth: int) -> None:
    """Remove a file or a folder with everything in it, never through a link. Raises Deviates when it is too deep."""
    if depth > MAX_DEPTH:
        raise Deviates("folders are nested too deeply")
    try:
        os.unlink(name, dir_fd=at)
    except IsADirectoryError:
        with _folder(at, name) as fd:
            for inner in os.listdir(fd):
                _remove(fd, inner, depth + 1)
        os.rmdir(name, dir_fd=at)


def _write(at: int, name: str, content: bytes) -> None:
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, _FILE, dir_fd=at)
    try:
        os.fchmod(fd, _FILE)
        while content:
            content = content[os.write(fd, content) :]
    finally:
        os.close(fd)


def _read(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def _children(pid: int) -> str:
    return _read(f"/proc/{pid}/task/{pid}/children").strip()
