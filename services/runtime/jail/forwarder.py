"""Carries a candidate's connections to the socket of the allow-list proxy, for libraries that know only host and port.

A third part of the program inside a jail (see `tree.py`), there only with the network runtime. It grants nothing: it
runs as the candidate does, and whoever kills it or speaks to the socket without it gets what the proxy allows. It is
started for each run and killed with it.
"""

import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing itself is too slow to import here
    from _socket import socket as Socket

PROXY = "/proxy"
PAIRS = 12
"""Connections at once; two descriptors each."""
CHUNK = 65_536
POLLIN, POLLOUT = 1, 4
VARIABLES = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")


def start_forwarder() -> None:
    """Listen on the jail's own loopback and say where in the environment; connections wait until they are taken."""
    import _socket

    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", 0))  # a port of the kernel's choice: the last run's may still be in use
    listener.listen(PAIRS)
    child = posix.fork()
    if child == 0:
        try:  # twice, so that it is no child of the candidate's, who may wait for all of its own
            if posix.fork() == 0:
                posix.closerange(3, listener.fileno())
                posix.closerange(listener.fileno() + 1, 1024)
                Forwarder(listener).run()
        finally:
            posix._exit(0)
    posix.waitpid(child, 0)
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    listener.close()
    for name in VARIABLES:
        posix.putenv(name, address)
        posix.environ[name.encode()] = address.encode()
        if "os" in sys.modules:
            sys.modules["os"].environ[name] = address


class End:
    """One end of a pair: what is to be written to it, and whether nothing more is read from it or written to it."""

    def __init__(self, sock: "Socket") -> None:
        sock.setblocking(False)
        self.sock = sock
        self.fd = sock.fileno()
        self.waiting = b""
        self.ended = False
        self.shut = False
        self.watched = False
        self.peer = self

    def copy(self, event: int) -> None:
        """What one event allows, at most one chunk ahead."""
        if self.waiting and event & ~POLLIN:
            try:
                self.waiting = self.waiting[self.sock.send(self.waiting) :]
            except BlockingIOError:
                return
            except OSError:  # it takes no more, but what it said may still be on its way to the other end
                self.waiting, self.peer.ended = b"", True
        elif not self.ended and not self.peer.waiting:
            try:
                self.peer.waiting = self.sock.recv(CHUNK)
            except OSError:
                self.peer.waiting = b""
            self.ended = not self.peer.waiting

    def finish(self) -> None:
        """Say that nothing follows, once nothing does."""
        if self.peer.ended and not self.waiting and not self.shut:
            self.shut = True
            try:  # noqa: SIM105 - contextlib is not imported here
                self.sock.shutdown(1)
            except OSError:
                pass


class Forwarder:
    """Copies both ways of every pair."""

    def __init__(self, listener: "Socket") -> None:
        import select

        self.listener = listener
        self.poll = select.poll()
        self.ends: dict[int, End] = {}

    def run(self) -> None:
        """Until it is killed."""
        while True:
            self.poll.register(self.listener, POLLIN if len(self.ends) < 2 * PAIRS else 0)
            for fd, event in self.poll.poll():
                end = self.ends.get(fd)
                if fd == self.listener.fileno():
                    self.accept()
                elif end is not None:
                    end.copy(event)
                    self.settle((end, end.peer))

    def accept(self) -> None:
        """A new pair, or none when the proxy is not there."""
        import _socket

        near = End(_socket.socket(fileno=self.listener._accept()[0]))  # type: ignore[attr-defined]  # typeshed lacks it
        sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            sock.connect(PROXY)
        except OSError:
            sock.close()
            near.sock.close()
            return
        far = End(sock)
        near.peer, far.peer = far, near
        self.ends[near.fd], self.ends[far.fd] = near, far
        self.settle((near, far))

    def settle(self, pair: tuple[End, End]) -> None:
        """Wait for what can be done next; close a pair that has nothing left to do."""
        done = all(end.ended and not end.waiting for end in pair)
        for end in pair:
            end.finish()
            wanted = (POLLOUT if end.waiting else 0) | (POLLIN if not end.ended and not end.peer.waiting else 0)
            if wanted and not done:
                self.poll.register(end.fd, wanted)
            elif end.watched:  # hang-ups are told in any case, so an end without anything to do is left out
                self.poll.unregister(end.fd)
            end.watched = bool(wanted and not done)
            if done:
                del self.ends[end.fd]
                end.sock.close()
