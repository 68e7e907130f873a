"""The looks at a run, live or finished: audit, tap, trial, topics; each finds the topics and prints."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from infra.local.deployed import is_deployed, settings_of
from infra.local.rundir import RunDir
from infra.local.stack import readable
from services.runtime.screen import print_table, say, say_json

if TYPE_CHECKING:
    from services.runtime.cluster import Cluster


@contextlib.contextmanager
def topics_of(root: Path, bootstrap: str) -> Iterator[Cluster]:
    """The given address, or that of the run in this folder (a finished run's log is served while the look lasts)."""
    if bootstrap:
        yield bootstrap
        return
    run = RunDir(root)
    run.settings()
    with readable(run) as found:
        yield found


def audit_run(root: Path, bootstrap: str) -> int:
    """Print the audit; 0 when it balances. Of a run's own folder also what its logs should hold and do not."""
    from infra.local.damage import missing
    from infra.local.watch import audit_topics
    from services.runtime.errors import UserError

    run = RunDir(root)
    settings = settings_of(run) if run.exists() and not bootstrap else None
    with topics_of(root, bootstrap) as address:
        result = audit_topics(address, lambda text: say(text, error=True))
        if settings is not None:
            try:
                lost = missing(settings, address, None if settings.kafka.bootstrap else run.broker)
                result.problems.extend(str(each) for each in lost)
            except UserError as e:  # the account itself needs neither store nor an operator's login
                result.notes.append(f"not compared with what was read, checkpoints and recording: {e.what}")
    for line in result.lines():
        say(line)
    return 0 if result.balanced else 1


def show_verdicts(root: Path, bootstrap: str, as_json: bool) -> int:
    """Print the account of the verdicts; 1 when an alarm stopped the line."""
    from services.monitor import verdicts
    from services.runtime.tap import Undecodable, read_all

    broken: list[Undecodable] = []
    with topics_of(root, bootstrap) as cluster:
        read = (message for topic in verdicts.TOPICS for message in read_all(cluster, topic, undecodable=broken.append))
        found = verdicts.account(message.record for message in read)
    if broken:
        say(f"{len(broken)} records break their contract and are left out: {broken[0].error}", error=True)
    if as_json:
        say_json(verdicts.as_json(found), indent=1)
    else:
        verdicts.show(found)
    return 1 if found.stopped else 0


def tap_run(
    root: Path, bootstrap: str, topic: str, from_: str, where: list[str], as_json: bool, full: bool, limit: int
) -> int:
    """Print a topic: following a live stack, or all of a finished run's."""
    from services.monitor.tap import tap

    run = RunDir(root)
    live = bool(bootstrap) or run.live_bootstrap() is not None or is_deployed(run)
    with topics_of(root, bootstrap) as address:
        tap(address, topic, from_ or None, follow=live, where=where, as_json=as_json, full=full, limit=limit or None)
    return 0


def show_trial_of(root: Path, bootstrap: str, trial_id: str, as_json: bool, full: bool) -> int:
    """Print one trial as a conversation."""
    from services.monitor.trial import show_trial
    from services.runtime.store import open_store

    run = RunDir(root)
    settings = settings_of(run) if run.exists() or not bootstrap else None
    with topics_of(root, bootstrap) as address:
        store = open_store(settings.store, read_only=True) if settings is not None else None
        manifest = settings.base_manifest if settings is not None else ""
        show_trial(address, trial_id, store, manifest, as_json=as_json, full=full)
    return 0


def list_topics(config: Path | None, create: bool, grant: bool = False, plain: str = "") -> int:
    """Print every declared topic; `create` makes those that a cluster lacks, `grant` users and rules (see there)."""
    from schemas.access import readers_of
    from schemas.topics import ALL
    from services.runtime.settings import load

    settings = load(config)
    if grant:
        from services.runtime.access_admin import grant as grant_access

        say(f"{grant_access(settings, plain)} rules stand for run {settings.run_id!r}")
    if create:
        from services.runtime.errors import UserError
        from services.runtime.topics_admin import ensure_topics

        if not settings.kafka.bootstrap:
            raise UserError("kafka.bootstrap is empty", do="set ROLLSTREAM_KAFKA__BOOTSTRAP to a cluster's address")
        ensure_topics(settings)
    print_table(
        ("topic", "key", "partitions", "keeps", "dead letters", "written by", "read by"),
        (
            (
                topic.name,
                topic.key,
                topic.partitions(settings.kafka.partitions),
                "latest per key" if topic.compacted else f"{topic.retention_ms / 86_400_000:g} d",
                "yes" if topic.dlq else "no: stops",
                ", ".join(topic.producers),
                ", ".join(readers_of(topic)),
            )
            for topic in ALL
        ),
    )
    return 0
