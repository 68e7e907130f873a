"""A small separate process that starts jails, so that nothing large is ever forked and one death ends them all.

It is run as a script by a bare interpreter (`-I -S -B`) and imports nothing of ours. Its parent talks to it over a
SOCK_SEQPACKET pair on fd 0: one JSON request, one JSON answer. It ends when that socket closes, and every jail dies
with it (bubblewrap's --die-with-parent); a killed service therefore leaves nothing behind.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import gc
import json
import os
import resource
import select
import shutil
import signal
import socket
from typing import Any, NoReturn

MAX_REQUEST = 65_536
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)

_CLONE_NEWNS = 0x20000
_RDONLY, _NOSUID, _NODEV, _NOEXEC, _BIND, _REC, _PRIVATE = 1, 2, 4, 8, 0x1000, 0x4000, 0x40000
_FLAGS = _NOSUID | _NODEV | _NOEXEC


def _mount(what: str, at: str, kind: str | None, flags: int, data: str = "") -> None:
    text = kind.encode() if kind is not None else None
    if _libc.mount(what.encode(), at.encode(), text, ctypes.c_ulong(flags), data.encode()) != 0:
        raise OSError(ctypes.get_errno(), f"mount of {kind or 'nothing'} at {at}: {os.strerror(ctypes.get_errno())}")


def _own_mounts() -> None:
    """From here on, no mount made by this process can be seen outside, and all of them go when the last user ends."""
    if _libc.unshare(_CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), f"no mount namespace: {os.strerror(ctypes.get_errno())}")
    _mount("none", "/", None, _REC | _PRIVATE)


def _escaped(path: str) -> str:
    return path.replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")


def _stage(stage: dict[str, Any], uid: int) -> None:
    """The jail's /tmp at `stage["at"]`/top: a bounded tmpfs, and in it an overlay over a fixture's tree if asked for.

    Its root at `stage["at"]`/root: an overlay too, so that no inode that it can name is another jail's.
    Upper and work folder of the overlay lie beside `top`, so that nothing in the jail has a name for them. There, too,
    appears a proxy's socket if asked for: itself it lies in a folder that the jail's user cannot enter.
    """
    at, top = stage["at"], stage["at"] + "/top"
    _own_mounts()
    _mount("tmpfs", at, "tmpfs", _FLAGS, f"size={stage['bytes']},nr_inodes={stage['inodes']},mode=0755")
    os.mkdir(top, 0o700)
    if stage["root"]:
        for folder in ("/root", "/none"):
            os.mkdir(at + folder, 0o755)
        places = f"lowerdir={_escaped(stage['root'])}:{_escaped(at)}/none,redirect_dir=nofollow,metacopy=off,index=off"
        _mount("overlay", at + "/root", "overlay", _NOSUID | _NODEV | _RDONLY, places)
    if stage["lower"]:
        for folder, mode in ((at + "/upper", 0o777), (at + "/work", 0o700), (top + "/tree", 0o700)):
            os.mkdir(folder)
            os.chmod(folder, mode)
        places = f"lowerdir={_escaped(stage['lower'])},upperdir={_escaped(at)}/upper,workdir={_escaped(at)}/work"
        _mount("overlay", top + "/tree", "overlay", _FLAGS, places + ",redirect_dir=nofollow,metacopy=off,index=off")
    if stage["proxy"]:
        os.close(os.open(at + "/proxy", os.O_CREAT | os.O_EXCL, 0o444))
        _mount(stage["proxy"], at + "/proxy", None, _BIND)
    os.chown(top, uid, uid)


def _child(request: dict[str, Any], fds: list[int], parent: int) -> NoReturn:
    """Between fork and exec: join the groups, bound, become the slot's user, put 0/1/2/3 in place, run bubblewrap."""
    try:
        os.dup2(fds[0], 0)
        os.dup2(fds[1], 1)
        os.dup2(fds[2], 2)
        for path in request["join"]:
            fd = os.open(path, os.O_WRONLY)
            os.write(fd, b"0")
            os.close(fd)
        if request["stage"]:
            _stage(request["stage"], request["uid"])
        if request["expendable"]:  # rather the jail than its owner, should memory end around them
            with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
                file.write("1000")
        for kind, value in request["rlimits"]:
            resource.setrlimit(kind, (value, value))
        filter_fd = os.open(request["seccomp"], os.O_RDONLY)
        os.dup2(filter_fd, 3)
        os.set_inheritable(3, True)  # dup2 of 3 onto itself would leave it closing on exec
        os.closerange(4, 64)
        if request["uid"]:
            os.setgroups([])
            os.setresgid(request["uid"], request["uid"], request["uid"])
            os.setresuid(request["uid"], request["uid"], request["uid"])
        # bubblewrap does the same for itself, but only once it has started; a change of user would have cleared it.
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(127)
        os.chdir("/")
        signal.set_wakeup_fd(-1)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.execve(request["argv"][0], [request["label"], *request["argv"][1:]], request["env"])
    except BaseException as error:
        os.write(2, f"spawner: {type(error).__name__}: {error}".encode())
    finally:
        os._exit(127)
    raise AssertionError("unreachable")


class Spawner:
    """Starts, remembers and reaps the children."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._running: set[int] = set()
        self._ended: dict[int, tuple[float, int]] = {}
        self._copies: dict[str, str] = {}

    def serve(self) -> None:
        """Answer until the other side is gone."""
        poll = select.poll()
        poll.register(self._channel.fileno(), select.POLLIN)
        while True:
            if poll.poll(500):
                data, ancillary, _, _ = self._channel.recvmsg(MAX_REQUEST, socket.CMSG_SPACE(3 * 4))
                if not data:
                    return
                self._answer(json.loads(data), _passed(ancillary))
            else:
                self._reap()

    def _answer(self, request: dict[str, Any], fds: list[int]) -> None:
        if "probe" in request:
            self._send({"possible": _possible(request["probe"])})
            return
        if "copy" in request:
            try:
                self._send({"at": self._copy(request["copy"], request["at"]), "owner": os.getpid()})
            except OSError as error:
                self._send({"error": f"no copy of the interpreter in memory: {error}"})
            return
        if "wait" in request:
            cpu_s, status = self._wait(request["wait"])
            self._send({"cpu_s": cpu_s, "status": status})
            self._reap()
            return
        try:
            me = os.getpid()
            pid = os.fork()
            if pid == 0:
                _child(request, fds, me)
            self._running.add(pid)
            handle = os.pidfd_open(pid)
        except OSError as error:
            self._send({"error": str(error)})
            return
        finally:
            for fd in fds:
                os.close(fd)
        self._send({"pid": pid}, [handle])
        os.close(handle)

    def _copy(self, source: str, at: str) -> str:
        """A tree copied into memory of ours, at `at` where nobody else sees it; it goes when we and our jails end.

        What is in memory is not in a page cache that reading fills, and its inodes are no other service's.
        """
        if not self._copies:
            _own_mounts()
            try:  # large pages are cheaper to map, where the kernel has them
                _mount("tmpfs", at, "tmpfs", _NOSUID | _NODEV, "mode=0755,huge=within_size")
            except OSError:
                _mount("tmpfs", at, "tmpfs", _NOSUID | _NODEV, "mode=0755")
        if source not in self._copies:
            target = f"{at}/{len(self._copies)}"
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(source, target, symlinks=True)
            self._copies[source] = target
        return self._copies[source]

    def _send(self, answer: dict[str, Any], fds: list[int] | None = None) -> None:
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self._channel.sendmsg([json.dumps(answer).encode()], ancillary)

    def _wait(self, pid: int) -> tuple[float | None, int | None]:
        """CPU seconds (user + system) of an ended child with the descendants it waited for, and its exit code (minus
        the signal that ended it); None when unknown."""
        if pid in self._running:
            self._running.discard(pid)
            _, status, usage = os.wait4(pid, 0)
            return usage.ru_utime + usage.ru_stime, os.waitstatus_to_exitcode(status)
        return self._ended.pop(pid, (None, None))

    def _reap(self) -> None:
        # Orphans of killed bubblewraps come to us, because we are their subreaper.
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self._running:
                self._running.discard(pid)
                self._ended[pid] = usage.ru_utime + usage.ru_stime, os.waitstatus_to_exitcode(status)


def _possible(stage: dict[str, Any]) -> bool:
    """Whether such a stage can be made here, found out by making one in a child that ends at once."""
    pid = os.fork()
    if pid == 0:
        try:
            _stage(stage, os.geteuid())
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


def _passed(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    fds = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return list(fds)


def main() -> None:
    """Entry of the script."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # A Ctrl-C at the terminal reaches the whole foreground group; the service decides when its jails end.
    os.setsid()
    os.umask(0o022)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    gc.disable()
    gc.freeze()
    Spawner(socket.socket(fileno=0)).serve()


if __name__ == "__main__":
    main()
