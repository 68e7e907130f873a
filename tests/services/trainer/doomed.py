"""Processes that are forked from one that has imported everything, and that may kill themselves at a chosen call.

Run as a program it reads one JSON request a line and answers with one line: `{"broker": argv}` and `{"trainer": config,
"log": path, "fuse": [name, call, side] | null, "trace": path | null}` fork a process and answer its id, `{"poll": id}`
answers its exit code or null. A trainer with a fuse sends itself SIGKILL before or after the n-th call of one of the
functions below; production code knows nothing of it.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
Point = tuple[str, int, str]
"""Name of a function, which call of it (from 1), `before` or `after`."""


class Fuse:
    """Counts the calls of every watched function, over all threads, and ends the process at one of them."""

    def __init__(self, at: Point | None) -> None:
        self._at = at
        self._lock = threading.Lock()
        self._calls: Counter[str] = Counter()
        self.seen: list[Point] = []

    def watch(self, owner: Any, name: str, called: str | None = None) -> None:
        """Replace `owner.name` by itself between two places to die at."""
        real: Callable[..., Any] = getattr(owner, name)
        label = called or f"{getattr(owner, '__name__', owner)}.{name}"

        @functools.wraps(real)
        def watched(*args: Any, **kwargs: Any) -> Any:
            with self._lock:
                self._calls[label] += 1
                number = self._calls[label]
            self._reach((label, number, "before"))
            try:
                return real(*args, **kwargs)
            finally:
                self._reach((label, number, "after"))

        setattr(owner, name, watched)

    def _reach(self, point: Point) -> None:
        with self._lock:
            self.seen.append(point)
            if point == self._at:
                os.kill(os.getpid(), signal.SIGKILL)


def wire(fuse: Fuse) -> None:
    """Everything that the outside can tell apart when a trainer dies around it, and the steps of the mathematics."""
    import torch
    from kafka import KafkaConsumer, KafkaProducer

    from services.agent import model
    from services.runtime.producer import Outbox
    from services.runtime.store_local import LocalStore
    from services.trainer import checkpoint, core
    from services.trainer.update import Updater

    for name in ("put", "put_if_absent", "put_content", "get", "get_into", "delete"):
        fuse.watch(LocalStore, name)
    for name in ("replace", "link", "fsync"):
        fuse.watch(os, name)
    fuse.watch(Outbox, "_acknowledged")
    fuse.watch(KafkaProducer, "send")
    fuse.watch(KafkaConsumer, "commit_async")
    fuse.watch(KafkaConsumer, "seek")
    fuse.watch(core.TrainerCore, "handle")
    fuse.watch(core.TrainerCore, "_begin")
    fuse.watch(core, "publish_checkpoint", "publish_checkpoint")
    fuse.watch(checkpoint, "fetch_checkpoint", "fetch_checkpoint")
    fuse.watch(model, "load", "model.load")
    fuse.watch(model, "save", "model.save")
    fuse.watch(torch, "save", "torch.save")
    fuse.watch(torch.autograd, "backward", "backward")
    fuse.watch(torch.optim.AdamW, "step")
    for name in ("update", "_imitate", "_apply_gradient", "save_state", "load_state"):
        fuse.watch(Updater, name)


def _trainer(request: dict[str, Any]) -> int:
    from services.runtime.settings import load
    from services.trainer.main import main

    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 2)
    fuse = Fuse(tuple(request["fuse"]) if request["fuse"] else None)
    wire(fuse)
    code = main(load(Path(request["trainer"])), None)
    if request["trace"]:
        Path(request["trace"]).write_text(json.dumps(fuse.seen))
    return code


def _forked(run: Callable[[], int]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        os.dup2(2, 1)
        code = run()
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 99
    sys.stderr.flush()
    os._exit(code)


def serve() -> None:
    """See the module. Ends, and ends all that it forked, when its input does."""
    import torch  # noqa: F401  # what every trainer needs is imported before the first fork
    import transformers.models.llama.modeling_llama  # noqa: F401

    import infra.broker.__main__ as broker
    import services.agent.harness
    import services.trainer.main
    import services.trainer.update  # noqa: F401

    children: dict[int, int | None] = {}
    for line in sys.stdin:
        request = json.loads(line)
        answer: int | None
        if "poll" in request:
            answer = children[request["poll"]]
            if answer is None:
                pid, status = os.waitpid(request["poll"], os.WNOHANG)
                if pid:
                    answer = children[pid] = os.waitstatus_to_exitcode(status)
        else:
            argv = request.get("broker")
            run = functools.partial(broker.main, argv) if argv else functools.partial(_trainer, request)
            answer = _forked(run)
            children[answer] = None
        print(json.dumps(answer), flush=True)
    for pid in [pid for pid, code in children.items() if code is None]:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


class Nursery:
    """The program above as seen by a test. Close it."""

    def __init__(self, log: Path) -> None:
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.services.trainer.doomed"], cwd=ROOT, text=True, stderr=out,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            )  # fmt: skip

    def _ask(self, **request: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def broker(self, *argv: str) -> int:
        """Fork a broker; its process id."""
        return int(self._ask(broker=list(argv)))

    def trainer(self, config: Path, log: Path, fuse: Point | None = None, trace: Path | None = None) -> int:
        """Fork a trainer; its process id."""
        return int(self._ask(trainer=str(config), log=str(log), fuse=fuse, trace=str(trace) if trace else None))

    def poll(self, pid: int) -> int | None:
        """Exit code; None while it runs."""
        code: int | None = self._ask(poll=pid)
        return code

    def close(self) -> None:
        """End everything."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)


if __name__ == "__main__":
    serve()
