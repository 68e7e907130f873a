"""Reads a QuixBugs-style JSON-lines file as people write them: programs, or one message with file, line and reason."""

import json
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from keyword import iskeyword
from pathlib import Path
from typing import Any, NoReturn

from services.runtime.errors import UserError
from services.tasks import values
from services.tasks.fixture import Example

MAX_LINE_BYTES = 64 << 20
MAX_NAME_CHARS = 100
_FORMAT = "mend that line; the format is in services/tasks/quixbugs/importer.py"


class BadProgram(UserError, ValueError):
    """A file is no list of programs with cases, or a line of it is none; the message names the file and the line."""

    def __init__(self, what: str, do: str = _FORMAT) -> None:
        super().__init__(what, do=do)


@dataclass(frozen=True)
class Program:
    """One line: the function's name, the source to repair, the repaired one, and the cases; `where` names the line."""

    name: str
    buggy: str
    correct: str
    cases: tuple[Example, ...]
    where: str


def read(path: Path) -> Iterator[Program]:
    """The programs of a file, line by line; blank lines count but hold none. Raises BadProgram."""
    try:
        with path.open("rb") as file:
            number = 0
            while raw := file.readline(MAX_LINE_BYTES + 1):
                number += 1
                where = f"{path}, line {number}"
                if len(raw) > MAX_LINE_BYTES:
                    raise BadProgram(f"{where}: longer than {MAX_LINE_BYTES >> 20} MiB")
                if number == 1:
                    raw = raw.removeprefix(b"\xef\xbb\xbf")
                if raw.strip():
                    yield _program(_json(raw, where), where)
    except (OSError, ValueError) as error:
        if isinstance(error, BadProgram):
            raise
        raise BadProgram(f"cannot read tasks from {path}: {error}", 'give "catalogue" or a JSON-lines file') from error


def _json(raw: bytes, where: str) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise BadProgram(f"{where}: an object has the same key twice: {', '.join(name for name, _ in pairs)[:80]}")
        return found

    try:
        return json.loads(raw.decode("utf-8"), object_pairs_hook=unique)
    except BadProgram:
        raise
    except UnicodeDecodeError as error:
        raise BadProgram(f"{where}: not UTF-8 ({error.reason} at byte {error.start})") from error
    except RecursionError:
        raise BadProgram(f"{where}: not JSON of a program: nested deeper than {values.MAX_DEPTH}") from None
    except ValueError as error:
        raise BadProgram(f"{where}: not JSON ({str(error)[:120]})") from error


def _program(document: Any, where: str) -> Program:
    def wrong(what: str) -> NoReturn:
        raise BadProgram(f"{where}: {what}")

    if not isinstance(document, dict):
        wrong(f"an object is needed, found {type(document).__name__}")
    for key in ("name", "buggy", "correct"):
        if not isinstance(document.get(key), str) or not document[key].strip():
            wrong(f"{key!r} must be text")
        _asked(document[key], f"{where}: {key!r}")
    # As the interpreter spells an identifier: another spelling of the same name would not be found in the module.
    name = unicodedata.normalize("NFKC", document["name"])
    if not name.isidentifier() or iskeyword(name) or len(name) > MAX_NAME_CHARS:
        wrong(f"'name' must be the name of a function, found {document['name'][:MAX_NAME_CHARS]!r}")
    cases = document.get("cases")
    if not isinstance(cases, list) or not cases or not all(isinstance(case, list) and len(case) == 2 for case in cases):
        wrong("'cases' must be a list of [arguments, expected]")
    return Program(name, _source(document["buggy"]), _source(document["correct"]), _examples(cases, where), where)


def _examples(cases: list[list[Any]], where: str) -> tuple[Example, ...]:
    found = []
    answers: dict[str, tuple[int, str]] = {}
    for number, (given, want) in enumerate(cases, 1):
        example = Example(tuple(given) if isinstance(given, list) else (given,), want)
        asked = _asked(example.args, f"{where}: arguments of case {number}")
        answer = _asked(want, f"{where}: answer of case {number}")
        first, known = answers.setdefault(asked, (number, answer))
        if known != answer:
            raise BadProgram(f"{where}: case {number} wants another answer to what case {first} asks")
        found.append(example)
    return tuple(found)


def _asked(value: Any, what: str) -> str:
    """The text in which a value crosses to a jail. Raises BadProgram for what cannot."""
    try:
        text = values.dumps(value)
    except values.Unencodable as error:
        raise BadProgram(f"{what} cannot be asked: {error}") from error
    if len(text) > values.MAX_CHARS // 2:  # an answer may be told together with its arguments
        raise BadProgram(f"{what} cannot be asked: longer than {values.MAX_CHARS // 2} characters")
    return text


def _source(text: str) -> str:
    """Lines end as Python itself ends them: another ending is no difference, and a diff of one cannot be admitted."""
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    return text.strip("\n") + "\n"
