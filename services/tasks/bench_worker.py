"""The far side of `bench`: a bare interpreter that loads one candidate at a time and answers calls line by line.

Started as `python -I -B bench_worker.py VALUES_PY MEMORY_BYTES`; imports nothing of ours but the file it is given.
Requests and replies are one line each: "load ENTRY SOURCE" and "call CPU_SECONDS DRAIN ARGS_AFTER ARGUMENTS", the texts
as in `values`; replies are "ok", "value TEXT", "raised NAME", "silent REASON".
"""

import io
import os
import resource
import runpy
import signal
import sys
from typing import Any


class _OutOfTime(BaseException):
    """The call used its CPU seconds; not an Exception, so that a candidate's handler does not keep it."""


def _out_of_time(signum: int, frame: object) -> None:
    raise _OutOfTime


def _load(values: dict[str, Any], entry: str, source: str) -> tuple[Any, str]:
    namespace: dict[str, Any] = {"__name__": "candidate"}
    try:
        exec(compile(source, "candidate.py", "exec"), namespace)
        return namespace[entry], "ok"
    except BaseException as error:
        return None, f"raised {values['exception_name'](error)}"


def _call(values: dict[str, Any], function: Any, request: str) -> str:
    cpu_s, drain, args_after, text = request.split(" ", 3)
    args = values["loads"](text)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, float(cpu_s))
        try:
            value = function(*args)
            node = values["encode"](value, drain == "1")
            after = values["encode"](args) if args_after == "1" else None
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        return f"value {values['to_text']([node, after])}"
    except _OutOfTime:
        return "silent time"
    except values["Unencodable"] as error:
        return "silent " + str(error)[:80].replace("\n", " ")
    except BaseException as error:
        return "raised " + "+".join(values["exception_names"](error))


def main() -> None:
    """Serve until the request pipe closes."""
    values = runpy.run_path(sys.argv[1])
    memory = int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGVTALRM, _out_of_time)
    requests, replies = os.fdopen(os.dup(0), "r", encoding="utf-8"), os.fdopen(os.dup(1), "w", encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    sys.stdin, sys.stdout = io.StringIO(), io.StringIO()
    function: Any = None
    for line in requests:
        word, _, rest = line.rstrip("\n").partition(" ")
        if word == "load":
            entry, source = values["loads"](rest)
            function, reply = _load(values, entry, source)
        else:
            reply = _call(values, function, rest)
        replies.write(reply + "\n")
        replies.flush()


if __name__ == "__main__":
    main()
