"""A small separate process that starts jails, so that nothing large is ever forked and one death ends them all.

It is run as a script by a bare interpreter (`-I -S -B`) and imports nothing of ours. Its parent talks to it over a
SOCK_SEQPACKET pair on fd 0: one JSON request, one JSON answer. It ends when that socket closes, and every jail dies
with it (bubblewrap's --die-with-parent); a killed service therefore leaves nothing behind.
"""

from __future__ import annotations

import array
import ctypes
import gc
import json
import os
import resource
import select
import signal
import socket
import sys
from typing import Any, NoReturn

MAX_REQUEST = 65_536
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


def _child(request: dict[str, Any], fds: list[int], seccomp: str, parent: int) -> NoReturn:
    """Between fork and exec: join the groups, bound, become the slot's user, put 0/1/2/3 in place, run bubblewrap."""
    try:
        os.dup2(fds[0], 0)
        os.dup2(fds[1], 1)
        os.dup2(fds[2], 2)
        for path in request["join"]:
            fd = os.open(path, os.O_WRONLY)
            os.write(fd, b"0")
            os.close(fd)
        for kind, value in request["rlimits"]:
            resource.setrlimit(kind, (value, value))
        filter_fd = os.open(seccomp, os.O_RDONLY)
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
        os.execve(request["argv"][0], [request["label"], *request["argv"][1:]], {})
    except BaseException as error:
        os.write(2, f"spawner: {type(error).__name__}: {error}".encode())
    finally:
        os._exit(127)
    raise AssertionError("unreachable")


class Spawner:
    """Starts, remembers and reaps the children."""

    def __init__(self, channel: socket.socket, seccomp: str) -> None:
        self._channel = channel
        self._seccomp = seccomp
        self._running: set[int] = set()
        self._ended: dict[int, float] = {}

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
        if "wait" in request:
            self._send({"cpu_s": self._wait(request["wait"])})
            self._reap()
            return
        try:
            me = os.getpid()
            pid = os.fork()
            if pid == 0:
                _child(request, fds, self._seccomp, me)
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

    def _send(self, answer: dict[str, Any], fds: list[int] | None = None) -> None:
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self._channel.sendmsg([json.dumps(answer).encode()], ancillary)

    def _wait(self, pid: int) -> float | None:
        """CPU seconds (user + system) of an ended child with the descendants it waited for; None when unknown."""
        if pid in self._running:
            self._running.discard(pid)
            _, _, usage = os.wait4(pid, 0)
            return usage.ru_utime + usage.ru_stime
        return self._ended.pop(pid, None)

    def _reap(self) -> None:
        # Orphans of killed bubblewraps come to us, because we are their subreaper.
        while True:
            try:
                pid, _, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self._running:
                self._running.discard(pid)
                self._ended[pid] = usage.ru_utime + usage.ru_stime


def _passed(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    fds = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    return list(fds)


def main() -> None:
    """Entry of the script: its one argument is the path of the system-call filter."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # A Ctrl-C at the terminal reaches the whole foreground group; the service decides when its jails end.
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    gc.disable()
    gc.freeze()
    Spawner(socket.socket(fileno=0), sys.argv[1]).serve()


if __name__ == "__main__":
    main()
