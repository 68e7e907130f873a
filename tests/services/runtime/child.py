"""A service as its own process, for tests of signals and crashes: `python -m tests.services.runtime.child …`."""

import sys
import time
from pathlib import Path

from schemas import topics
from services.runtime.context import ServiceSpec
from services.runtime.core import BaseCore, Effects, Job, Output
from services.runtime.loop import run_service
from services.runtime.process import ServiceProcess
from services.runtime.settings import load
from tests.bench.loop_bench import RUN, result
from tests.services.runtime.bus import SHORT_SESSION_MS


class SlowEcho(BaseCore):
    """Answers each command from a worker, after `seconds`; the file tells the test what was begun."""

    def __init__(self, seconds, diary):
        self.seconds = seconds
        self.diary = diary.open("a", buffering=1)

    def handle(self, message, now_ms):
        done = Effects(outputs=[Output(topics.SANDBOX_RESULT, result(message.record))], done=[message.position])

        def run():
            self.diary.write(f"{message.record.issued_ms}\n")
            time.sleep(self.seconds)

        return Effects(jobs=[Job(run, lambda _: done, message.partition)])


def main():
    bootstrap, ready, diary, seconds = sys.argv[1:]
    settings = load(
        run_id=RUN, kafka={"bootstrap": bootstrap, "session_timeout_ms": SHORT_SESSION_MS}, runtime={"drain_s": 3.0}
    )
    spec = ServiceSpec("sandbox", inputs=(topics.SANDBOX_COMMAND,), workers=2, max_jobs=4)
    process = ServiceProcess("sandbox", settings, ready_file=Path(ready))
    return run_service(spec, lambda context: SlowEcho(float(seconds), Path(diary)), settings, process)


if __name__ == "__main__":
    sys.exit(main())
