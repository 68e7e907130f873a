"""`python -m infra.broker`: run the embedded broker as a process until SIGTERM or SIGINT."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import signal
import sys
from pathlib import Path

from infra.broker.broker import Broker, Settings
from infra.broker.errors import BrokerError
from infra.broker.files import replace_atomically
from infra.broker.flush import FsyncPolicy
from infra.broker.groups import GroupTimeouts


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m infra.broker", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="directory of the log; created when missing")
    parser.add_argument("--host", default="127.0.0.1", help="loopback address to listen on (default 127.0.0.1)")
    parser.add_argument("--port", type=int, default=0, help="0 (default) takes any free port")
    parser.add_argument(
        "--advertise",
        default="",
        metavar="HOST:PORT",
        help="address that clients are told (a proxy or tunnel before it)",
    )
    parser.add_argument(
        "--fsync",
        default="never",
        metavar="POLICY",
        help="never (default: survives the process), interval:MS, always (survives power loss)",
    )
    parser.add_argument("--ready-file", type=Path, help="write HOST:PORT here once serving")
    parser.add_argument("--housekeeping-ms", type=int, default=5000, help="retention and compaction interval")
    parser.add_argument("--min-session-ms", type=int, default=500, help="shortest session a group member may ask for")
    parser.add_argument("--initial-delay-ms", type=int, default=100, help="wait of a new group for more members")
    parser.add_argument("--max-request-bytes", type=int, default=100 * 1024 * 1024, help="largest request accepted")
    parser.add_argument("--verify", action="store_true", help="check every batch of the log before serving")
    parser.add_argument("--log-level", default="WARNING", help="DEBUG, INFO, WARNING (default) or ERROR")
    return parser.parse_args(argv)


def _settings(arguments: argparse.Namespace) -> Settings:
    return Settings(
        data=arguments.data,
        host=arguments.host,
        port=arguments.port,
        advertise=arguments.advertise,
        fsync=FsyncPolicy.parse(arguments.fsync),
        max_request_bytes=arguments.max_request_bytes,
        housekeeping_seconds=arguments.housekeeping_ms / 1000,
        verify=arguments.verify,
        timeouts=GroupTimeouts(
            min_session=arguments.min_session_ms / 1000, initial_delay=arguments.initial_delay_ms / 1000
        ),
    )


async def _run(settings: Settings, ready_file: Path | None) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    broker = Broker(settings)
    try:
        await broker.start()
        if ready_file is not None:
            replace_atomically(ready_file, broker.bootstrap.encode(), sync=False)
        print(
            f"broker ready at {broker.bootstrap}, data in {settings.data}, fsync {settings.fsync.describe()}",
            flush=True,
        )
        await stop.wait()
    finally:
        await broker.stop()
        if ready_file is not None:
            ready_file.unlink(missing_ok=True)


def main(argv: list[str] | None = None) -> int:
    """Run until told to stop; 0 after a clean end, 2 with one line on stderr for what a person can put right."""
    arguments = _arguments(argv)
    logging.basicConfig(level=arguments.log_level.upper(), format="%(asctime)s broker %(levelname)s %(message)s")
    gc.freeze()  # the imported modules live as long as the process: spare the collector
    try:
        asyncio.run(_run(_settings(arguments), arguments.ready_file))
    except BrokerError as error:
        print(f"broker: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
