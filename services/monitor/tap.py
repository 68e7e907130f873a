"""`rollstream tap`: records as they pass, decoded, one line each; what it stands on is loaded only when it runs."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO, cast

from services.runtime.errors import UserError
from services.runtime.screen import BLOCK_CHARS, CELL_CHARS, ReaderGone, cell, clock, reader_is_gone, say_json, styled

if TYPE_CHECKING:
    from services.monitor.source import Seen
    from services.runtime.cluster import Cluster

_DLQ_SHOWN = ("dlq.reason", "dlq.error", "dlq.service", "dlq.attempts")
_COLOURS = {
    "rollout.requested": "blue",
    "rollout.invocation": "cyan",
    "sandbox.command": "yellow",
    "sandbox.result": "yellow",
    "rollout.completed": "blue",
    "verification.trial": "magenta",
    "verification.verdict": "magenta",
    "group.closed": "green",
    "group.admission": "green",
    "policy.published": "bright_white",
    "policy.gate": "bright_white",
    "training.update": "bright_green",
    "evaluation.result": "bright_green",
}


def tap(
    cluster: Cluster,
    topic_names: str | Sequence[str] = "all",
    from_: str | int | None = None,
    follow: bool = True,
    where: Sequence[str] = (),
    as_json: bool = False,
    full: bool = False,
    limit: int | None = None,
    out: TextIO | None = None,
    stop: threading.Event | None = None,
) -> int:
    """Print records of the topics, oldest first, until stopped; returns how many were printed.

    `topic_names`: names (a `.vN` may be left out, `.dlq` appended) or `all`. `from_`: see `start.parse_start`; None is
    `latest` when following and `earliest` otherwise. `where`: conditions that all must hold. `limit`: stop after so
    many. Ctrl-C ends quietly. Raises UserError for an unreachable broker (within about 8 s), an unknown topic, field or
    starting place, and what `screen.say` raises.
    """
    from services.monitor import source
    from services.monitor.start import parse_start
    from services.monitor.where import parse_where

    names = [topic_names] if isinstance(topic_names, str) else list(topic_names)
    names = [part for name in names for part in name.split(",") if part]
    start = parse_start(from_ if from_ is not None else ("latest" if follow else "earliest"), int(time.time() * 1000))
    conditions = [parse_where(text) for text in where]
    if limit is not None and limit < 1:
        raise UserError(f"a limit of {limit} records prints nothing", "--limit", "give a number from 1")
    out = out or sys.stdout
    stream = source.read(cluster, names, start, follow, _Ended(stop, out), check=_field_check(conditions))
    kept = (seen for seen in stream if all(condition.holds(seen) for condition in conditions))
    return _print_all(kept, stream, _Printer(out, as_json, full), limit)


def _field_check(conditions: Sequence[Any]) -> Any:
    from services.monitor.where import require_fields

    return lambda topics: require_fields(conditions, topics)


def _print_all(kept: Iterator[Seen], stream: Iterator[Seen], printer: _Printer, limit: int | None) -> int:
    count = 0
    try:
        for seen in kept:
            printer.show(seen)
            count += 1
            if limit is not None and count >= limit:
                break
    except KeyboardInterrupt:
        pass
    finally:
        cast(Any, stream).close()
    if reader_is_gone(printer.out):
        raise ReaderGone
    return count


class _Ended:
    """Asked a few times a second: whether the caller wants no more, or nobody reads what would be printed."""

    def __init__(self, stop: threading.Event | None, out: TextIO) -> None:
        self._stop = stop
        self.out = out

    def is_set(self) -> bool:
        return (self._stop is not None and self._stop.is_set()) or reader_is_gone(self.out)


class _Printer:
    """One record, one line, on `out`; coloured only where `out` is a terminal."""

    def __init__(self, out: TextIO, as_json: bool, full: bool) -> None:
        self.out = out
        self._as_json = as_json
        self._full = full

    def show(self, seen: Seen) -> None:
        if self._as_json:
            say_json(json_value(seen, self._full), to=self.out)
        else:
            styled([(line(seen, self._full), style(seen))], self.out)


def style(seen: Seen) -> str:
    """The colour of a line: by record type; red for what is not a legal record or lies in a dead-letter topic."""
    if seen.problem is not None or seen.topic.endswith(".dlq") or seen.record is None:
        return "red"
    return _COLOURS.get(seen.record.TYPE.name, "default")


def line(seen: Seen, full: bool = False) -> str:
    """`time  topic  key or id  facts` of one message; its place in the log stands for the facts of an illegal one."""
    from services.monitor.facts import clip, facts, identity

    most = partial(cell, most=BLOCK_CHARS if full else CELL_CHARS)
    name = identity(seen.record) if seen.record is not None else seen.key
    rest = facts(seen.record, full) if seen.record is not None else ""
    if seen.topic.endswith(".dlq"):
        letter = [f"{k[4:]}={clip(v, 100, full)}" for k, v in _dead_letter(seen).items()]
        rest = "  ".join([*letter, f"{seen.size} B", *([rest] if full else [])])
    elif seen.problem is not None:
        place = f"partition {seen.partition} offset {seen.offset}, {seen.size} B"
        rest = f"NOT A RECORD  {clip(seen.problem, 160, full)}  {place}"
    return f"{clock(seen.timestamp_ms)}  {seen.topic.removesuffix('.v1'):<20}  {most(name):<22}  {rest}".rstrip()


def _dead_letter(seen: Seen) -> dict[str, str]:
    found = {k: v.decode(errors="replace") for k, v in seen.headers.items() if k.startswith("dlq.")}
    place = [found.get(f"dlq.source.{part}", "?") for part in ("topic", "partition", "offset")]
    shown = {k: found[k] for k in _DLQ_SHOWN if k in found}
    return {**shown, "dlq.from": "/".join(place)}


def json_value(seen: Seen, full: bool = False) -> dict[str, Any]:
    """The message's place and headers, then `record` (or `problem`). Long lists are cut unless `full`.

    A cut list is an object {"length", "head"}, so that nobody takes it for the whole; headers are text.
    """
    value: dict[str, Any] = {
        "topic": seen.topic,
        "partition": seen.partition,
        "offset": seen.offset,
        "timestamp_ms": seen.timestamp_ms,
        "key": seen.key,
        "size": seen.size,
        "headers": {k: v.decode(errors="replace") for k, v in seen.headers.items()},
    }
    if seen.record is not None:
        value["schema"] = f"{seen.record.TYPE.name}/{seen.record.TYPE.version}"
        value["record"] = record_json(seen.record, full)
    if seen.problem is not None:
        value["problem"] = seen.problem
    return value


_LONG = 16


def record_json(record: Any, full: bool = True) -> dict[str, Any]:
    """A record's fields as JSON values; NaN and infinity become null, for JSON has no word for them."""
    out: dict[str, Any] = {}
    for spec in record.TYPE.fields:
        value = getattr(record, spec.name)
        if spec.kind == "scalar" or value is None:
            out[spec.name] = _plain(value)
        elif full or len(value) <= _LONG:
            out[spec.name] = _plain_list(value)
        else:
            out[spec.name] = {"length": len(value), "head": _plain_list(value[:2])}
    return out


def _plain_list(values: Iterable[Any]) -> list[Any]:
    listed = values.tolist() if hasattr(values, "tolist") else list(values)
    return [_plain(v) for v in listed]


def _plain(value: Any) -> Any:
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value
