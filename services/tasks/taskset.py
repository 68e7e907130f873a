"""A named set of tasks with its splits, and the two documents (public, hidden) in which it is stored and shipped."""

import difflib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from services.tasks.fixture import CheckSet, Fixture, canonical, content_digest

TRAIN = "train"
HELDOUT_BUGS = "heldout_bugs"
HELDOUT_FAMILIES = "heldout_families"
SPLITS = (TRAIN, HELDOUT_BUGS, HELDOUT_FAMILIES)

PUBLIC_FORMAT = "rollstream.tasks.public/1"
HIDDEN_FORMAT = "rollstream.tasks.hidden/1"


_COMPARED = 200
"""Characters of an unknown id that are looked at."""


class UnknownTask(KeyError):
    """No task has this id; `near` holds the ids that look most like it."""

    def __init__(self, task_id: str, known: Iterable[str]) -> None:
        self.task_id = task_id
        self._known = known
        super().__init__(task_id)

    @property
    def near(self) -> tuple[str, ...]:
        """Worked out for whoever reads it: the id may be any text of a record, and comparing is slow."""
        asked = self.task_id[:_COMPARED]
        return tuple(difflib.get_close_matches(asked, list(self._known), n=3, cutoff=0.5))

    def __str__(self) -> str:
        near = self.near
        hint = f"; near matches: {', '.join(near)}" if near else "; no id is close to it"
        return f"unknown task {self.task_id[:_COMPARED]!r}{hint}"


class BadDocument(ValueError):
    """A task document is not what it says it is (format, digest or content)."""


@dataclass(frozen=True)
class CheckSets:
    """The hidden halves of a task set by task id."""

    name: str
    by_id: Mapping[str, CheckSet]

    def get(self, task_id: str) -> CheckSet:
        """The check set of one task. Raises UnknownTask."""
        if task_id not in self.by_id:
            raise UnknownTask(task_id, self.by_id)
        return self.by_id[task_id]

    def __len__(self) -> int:
        return len(self.by_id)

    def __iter__(self) -> Iterator[CheckSet]:
        return iter(self.by_id.values())


@dataclass(frozen=True)
class TaskSet:
    """Fixtures with their splits (name -> task ids, disjoint); `checks` is empty after `load_public`."""

    name: str
    fixtures: tuple[Fixture, ...]
    splits: Mapping[str, tuple[str, ...]]
    checks: CheckSets = field(default_factory=lambda: CheckSets("", {}), repr=False)

    def __post_init__(self) -> None:
        ids = [fixture.task_id for fixture in self.fixtures]
        placed = [task_id for members in self.splits.values() for task_id in members]
        if len(set(ids)) != len(ids):
            raise BadDocument(f"task set {self.name!r} names a task twice")
        if sorted(placed) != sorted(ids):
            raise BadDocument(f"task set {self.name!r}: the splits do not hold every task exactly once")

    @cached_property
    def _by_id(self) -> dict[str, Fixture]:
        return {fixture.task_id: fixture for fixture in self.fixtures}

    @cached_property
    def _split_of(self) -> dict[str, str]:
        return {task_id: split for split, members in self.splits.items() for task_id in members}

    def get(self, task_id: str) -> Fixture:
        """The fixture of one task. Raises UnknownTask."""
        if task_id not in self._by_id:
            raise UnknownTask(task_id, self._by_id)
        return self._by_id[task_id]

    def split(self, name: str) -> tuple[Fixture, ...]:
        """The fixtures of one split, in order (empty when the set has no such split)."""
        return tuple(self._by_id[task_id] for task_id in self.splits.get(name, ()))

    def split_of(self, task_id: str) -> str:
        """The split that holds a task. Raises UnknownTask."""
        self.get(task_id)
        return self._split_of[task_id]

    @cached_property
    def digest(self) -> str:
        """Content digest of the public document's body."""
        return content_digest(self._public_body())

    def _public_body(self) -> dict[str, Any]:
        return {
            "format": PUBLIC_FORMAT,
            "name": self.name,
            "fixtures": [fixture.to_json() for fixture in self.fixtures],
            "splits": {name: list(members) for name, members in self.splits.items()},
        }

    def public_document(self) -> bytes:
        """Canonical JSON of the public half with its content digest."""
        return sealed(self._public_body())

    def hidden_document(self) -> bytes:
        """Canonical JSON of the hidden half with its content digest. Raises BadDocument if a check set is missing."""
        missing = [fixture.task_id for fixture in self.fixtures if fixture.task_id not in self.checks.by_id]
        if missing:
            raise BadDocument(f"no check set for {missing[0]} (and {len(missing) - 1} more)")
        body = {
            "format": HIDDEN_FORMAT,
            "name": self.name,
            "checks": [self.checks.by_id[fixture.task_id].to_json() for fixture in self.fixtures],
        }
        return sealed(body)


def load_public(document: bytes) -> TaskSet:
    """The task set of a public document, without check sets. Raises BadDocument."""
    body = opened(document, PUBLIC_FORMAT)
    try:
        fixtures = tuple(Fixture.from_json(item) for item in body["fixtures"])
        splits = {name: tuple(members) for name, members in body["splits"].items()}
        return TaskSet(body["name"], fixtures, splits)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadDocument(f"public task document: malformed content ({error!r})") from error


def load_hidden(document: bytes) -> CheckSets:
    """The check sets of a hidden document. Raises BadDocument."""
    body = opened(document, HIDDEN_FORMAT)
    try:
        checks = [CheckSet.from_json(item) for item in body["checks"]]
        return CheckSets(body["name"], {check.task_id: check for check in checks})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadDocument(f"hidden task document: malformed content ({error!r})") from error


def sealed(body: dict[str, Any]) -> bytes:
    """Canonical JSON of a document (which names its `format`) with its content digest."""
    return canonical({**body, "digest": content_digest(body)})


def opened(document: bytes, wanted: str) -> dict[str, Any]:
    """Inverse of `sealed` for a document of the format `wanted`. Raises BadDocument."""
    try:
        body = json.loads(document)
    except (ValueError, RecursionError) as error:
        raise BadDocument(f"task document: not JSON ({str(error)[:120]})") from error
    if not isinstance(body, dict) or body.get("format") != wanted:
        found = body.get("format") if isinstance(body, dict) else type(body).__name__
        raise BadDocument(f"task document: format {found!r} where {wanted!r} is needed")
    stated = body.pop("digest", None)
    try:
        found = content_digest(body)
    except (ValueError, RecursionError) as error:
        raise BadDocument(f"task document: not canonical JSON ({error})") from error
    if stated != found:
        raise BadDocument("task document: the content does not match its digest (changed after it was written)")
    return body
