"""Strimzi's KafkaTopic and KafkaUser resources, from the same declarations that make topics and rights anywhere else.

python -m infra.k8s.generate                                 write those of overlays/production
python -m infra.k8s.generate --check                         exit 1 when they are not what the code says
python -m infra.k8s.generate --config run.toml --to FOLDER   the same for an overlay of your own
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from schemas.access import Rule, principals, rules
from services.runtime.cluster import username_of
from services.runtime.errors import UserError
from services.runtime.settings import RunSettings, load
from services.runtime.topics_admin import declared

PRODUCTION = Path(__file__).parent / "overlays" / "production"
SETTINGS = PRODUCTION / "settings" / "run.toml"
FOLDER = PRODUCTION / "kafka"
CLUSTER = "rollstream"
"""The Kafka resource that topics and users belong to, as in components/strimzi."""
API = "kafka.strimzi.io/v1"
HEAD = "# Made by `python -m infra.k8s.generate` from schemas/ and run.toml; a test compares. Do not edit.\n"
_WIDTH = 120
_PLAIN = re.compile(r"(?!(true|false|yes|no|on|off|null)$)[a-z][\w./-]*", re.IGNORECASE)


def topics(settings: RunSettings) -> list[dict[str, Any]]:
    """One KafkaTopic for every declared topic and dead-letter topic."""
    return [
        _resource(
            "KafkaTopic",
            name,
            {"partitions": partitions, "replicas": settings.kafka.replication, "config": dict(sorted(config.items()))},
        )
        for name, (partitions, config) in sorted(declared(settings).items())
    ]


def users(settings: RunSettings) -> list[dict[str, Any]]:
    """One KafkaUser for every principal, with exactly the rights of `schemas.access`; what no rule allows is denied.

    Raises UserError unless every service has a user of its own, logged in by SCRAM-SHA-512.
    """
    kafka = settings.kafka
    if "{service}" not in kafka.username or kafka.mechanism != "SCRAM-SHA-512":
        raise UserError(
            "Strimzi's users log in by SCRAM-SHA-512, one for each service",
            f"kafka.mechanism = {kafka.mechanism!r}, kafka.username = {kafka.username!r}",
            'set kafka.mechanism = "SCRAM-SHA-512" and kafka.username = "rollstream-{service}"',
        )
    held: dict[str, list[Rule]] = {name: [] for name in principals()}
    for rule in rules(settings.run_id):
        held[rule.principal].append(rule)
    return [
        _resource(
            "KafkaUser",
            username_of(kafka, name),
            {
                "authentication": {"type": "scram-sha-512"},
                "authorization": {"type": "simple", "acls": list(_acls(held[name]))},
            },
        )
        for name in held
    ]


def _acls(held: Iterable[Rule]) -> Iterator[dict[str, Any]]:
    operations: dict[tuple[str, str], list[str]] = {}
    for rule in held:
        operations.setdefault((rule.kind, rule.name), []).append(rule.operation.capitalize())
    for (kind, name), allowed in sorted(operations.items()):
        yield {
            "resource": {"type": kind, "name": name, "patternType": "literal"},
            "operations": sorted(allowed),
        }


def _resource(kind: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "labels": {"strimzi.io/cluster": CLUSTER}}
    return {"apiVersion": API, "kind": kind, "metadata": metadata, "spec": spec}


def yaml(documents: Iterable[Mapping[str, Any]]) -> str:
    """The documents as YAML; what fits into a line stands on one."""
    return HEAD + "---\n".join("".join(f"{line}\n" for line in _lines(document)) for document in documents)


def _lines(value: Mapping[str, Any] | list[Any], indent: int = 0) -> Iterator[str]:
    for key, inner in value.items() if isinstance(value, Mapping) else (("", item) for item in value):
        start = " " * indent + (f"{key}:" if key else "-")
        line = f"{start} {_flow(inner)}"
        if len(line) <= _WIDTH or not isinstance(inner, Mapping | list):
            yield line
        elif key:
            yield start
            yield from _lines(inner, indent + 2)
        else:
            first, *others = _lines(inner, indent + 2)
            yield f"{start} {first.lstrip()}"
            yield from others


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return value if isinstance(value, str) and _PLAIN.fullmatch(value) else json.dumps(value)


def files(config: Path) -> dict[str, str]:
    """File name -> content, for the run that `config` describes. Raises UserError."""
    # A login is not needed here, but settings with a mechanism and without a password are refused.
    settings = load(config, kafka={"password": "-", "password_file": ""})
    return {"topics.yaml": yaml(topics(settings)), "users.yaml": yaml(users(settings))}


def main(arguments: list[str] | None = None) -> int:
    """Write the files, or compare them; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m infra.k8s.generate", description="Strimzi's topics and users.")
    parser.add_argument("--config", type=Path, default=SETTINGS, help="the run's TOML file")
    parser.add_argument("--to", type=Path, default=FOLDER, help="folder of topics.yaml and users.yaml")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 where a file differs")
    given = parser.parse_args(arguments)
    try:
        wanted = files(given.config)
    except UserError as e:
        print(f"rollstream: {e}", file=sys.stderr)
        return 2
    differing = [
        name for name, text in wanted.items() if not (given.to / name).exists() or (given.to / name).read_text() != text
    ]
    for name in differing:
        if given.check:
            print(f"{given.to / name} is not what the code says: run python -m infra.k8s.generate", file=sys.stderr)
        else:
            given.to.mkdir(parents=True, exist_ok=True)
            (given.to / name).write_text(wanted[name])
            print(f"wrote {given.to / name}")
    return 1 if given.check and differing else 0


if __name__ == "__main__":
    sys.exit(main())
