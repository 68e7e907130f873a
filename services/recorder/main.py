"""Runs the recorder: every topic and every dead letter through its core, into the object store."""

from __future__ import annotations

from dataclasses import replace

from prometheus_client import Gauge

from schemas.topics import ALL, BY_NAME, Topic, dead_letter
from services.recorder.core import Limits, RecorderCore
from services.recorder.keeper import Keeper
from services.recorder.names import Lost
from services.runtime.context import ServiceContext, ServiceSpec
from services.runtime.loop import run_service
from services.runtime.prepared import BucketPatience
from services.runtime.process import SAY_EVERY_S, ServiceProcess
from services.runtime.settings import RunSettings
from services.runtime.store import MissingBucket, ObjectStore, StoreDenied

FETCH_BYTES = 1024 * 1024
"""Nobody waits for a recorded record: a fetch takes a second's worth, and costs the broker a fraction of many small
ones."""


def every_topic() -> tuple[Topic, ...]:
    """All declared topics and their dead letters, as topics of their own."""
    letters = [replace(topic, name=name, dlq=False) for topic in ALL if (name := dead_letter(topic))]
    return (*ALL, *letters)


def keyed(name: str) -> bool:
    """Whether a topic keeps only the last record of each key, so that its offsets have holes."""
    return name in BY_NAME and BY_NAME[name].compacted


def spec_of(settings: RunSettings) -> ServiceSpec:
    """Half of the buffer for open segments, half for those that are being stored."""
    wanted = settings.recorder
    return ServiceSpec(
        "recorder",
        inputs=every_topic(),
        workers=wanted.uploads,
        max_job_bytes=wanted.buffer_bytes // 2,
        raw=True,
        fetch_bytes=FETCH_BYTES,
    )


def _opened(context: ServiceContext) -> ObjectStore:
    """The store, as soon as there is its bucket and the right to it.

    Raises UserError after `runtime.prepared_s` without a bucket, or a minute without the right.
    """
    patience = BucketPatience(context.clock, context.settings.runtime.prepared_s)
    while True:
        try:
            return context.store
        except (MissingBucket, StoreDenied) as e:
            why = patience.bear(e)
            if patience.over or context.stop.is_set():
                raise
        context.log.warning("waiting for the bucket", error=why)
        context.stop.wait(SAY_EVERY_S)


def make_core(context: ServiceContext) -> RecorderCore:
    """The core as configured, with its metrics."""
    wanted, registry = context.settings.recorder, context.registry
    keeper = Keeper(_opened(context), context.settings.run_id, context.stop, context.log, context.clock.monotonic)

    def on_lost(gone: Lost) -> None:
        context.log.error(
            "records were lost before they were recorded", where=str(gone.place), first=gone.first, last=gone.last
        )

    limits = Limits(
        wanted.segment_bytes,
        int(wanted.segment_s * 1000),
        wanted.buffer_bytes // 2,
        max(1, min(Limits.segment_records, context.settings.runtime.window_records // 2)),
    )
    core = RecorderCore(limits, keeper.segment, keeper.lost, keyed, on_lost)
    for name, text in (
        ("records", "records stored since start"),
        ("segments", "segments stored since start"),
        ("bytes", "bytes of the segments stored since start"),
        ("lost", "records that the log dropped before they were recorded"),
    ):
        gauge = Gauge(f"rlvr_recorder_{name}", text, registry=registry)
        gauge.set_function(lambda name=name: core.counts.get(name, 0))  # type: ignore[misc]  # mypy: default argument
    held = Gauge("rlvr_recorder_open_bytes", "memory of segments that are not closed yet", registry=registry)
    held.set_function(lambda: core.open_bytes)
    down = Gauge(
        "rlvr_recorder_store_down_seconds", "for how long the object store has taken nothing", registry=registry
    )
    down.set_function(lambda: keeper.down_s)
    return core


def main(settings: RunSettings, process: ServiceProcess | None = None) -> int:
    """Run until SIGTERM; returns the exit code."""
    return run_service(spec_of(settings), make_core, settings, process)
