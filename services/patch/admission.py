"""Patch admission: our own strict grammar of unified diffs, and the tree that an admitted one makes of the fixture.

Grammar, once per file, nothing before, between or after:

    [diff --git a/PATH b/PATH] [new file mode 100644 | deleted file mode 100644] [index HEX..HEX[ 100644]]
    --- a/PATH | /dev/null
    +++ b/PATH | /dev/null
    @@ -START[,COUNT] +START[,COUNT] @@      one or more, ascending, every context and removed line exactly as stated
     context / -removed / +added / \\ No newline at end of file

There are no renames, copies, modes other than 100644, links, binary patches or quoted names, and no fuzz. A hunk
changes at least one line. Work grows linearly with diff and fixture.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from services.patch import paths, source

MAX_DIFF_BYTES = 256 * 1024
MAX_FILES = 50
MAX_CHANGED_LINES = 2_000
MAX_FILE_BYTES = 1024 * 1024

_HUNK = re.compile(
    r"@@ -(N)(?:,(N))? \+(N)(?:,(N))? @@(?: [^\x00-\x08\x0b-\x1f\x7f]*)?\Z".replace("N", r"0|[1-9]\d{0,6}"), re.ASCII
)
_INDEX = re.compile(r"index [0-9a-f]{4,64}\.\.[0-9a-f]{4,64}(?: 100644)?\Z", re.ASCII)
_NO_NEWLINE = "\\ No newline at end of file"
_MODES = {"new file mode 100644": "new", "deleted file mode 100644": "deleted"}


class Refused(Exception):
    """The diff is not admitted; `reason` is a short stable word, `detail` says where."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True)
class Admitted:
    """The candidate: the whole tree after the change, and which paths differ from the fixture."""

    tree: Mapping[str, str]
    changed: tuple[str, ...]

    @property
    def digest(self) -> str:
        """SHA-256 over the whole tree: two diffs that make the same tree are the same candidate."""
        seen = hashlib.sha256()
        for path in sorted(self.tree):
            raw = self.tree[path].encode()
            seen.update(f"{path}\0{len(raw)}\0".encode() + raw)
        return "sha256:" + seen.hexdigest()


def admit(diff: str, base: Mapping[str, str], globs: Sequence[str]) -> Admitted:
    """Apply `diff` to the fixture's `base` tree (path -> text). Raises Refused, and nothing else, for any text."""
    if len(diff) > MAX_DIFF_BYTES:
        raise Refused("diff_too_large", f"{len(diff)} characters")
    try:
        raw_size = len(diff.encode())
    except UnicodeEncodeError:
        raise Refused("not_utf8") from None
    if raw_size > MAX_DIFF_BYTES:
        raise Refused("diff_too_large", f"{raw_size} bytes")
    if not diff.strip():
        raise Refused("no_change", "empty diff")
    lines = _Lines(diff)
    tree = dict(base)
    named: set[str] = set()
    while not lines.ended:
        _one_file(lines, tree, named, base, globs)
    return _compared(tree, base, globs)


def _compared(tree: dict[str, str], base: Mapping[str, str], globs: Sequence[str]) -> Admitted:
    """The changed set, by comparing trees: what the headers said is not believed."""
    changed = tuple(sorted(path for path in tree.keys() | base.keys() if tree.get(path) != base.get(path)))
    for path in changed:
        fault = paths.name_fault(path) or (None if paths.allowed(path, globs) else "path_not_allowed")
        if fault:
            raise Refused(fault, path)
        if path in tree:
            _check_text(path, tree[path], base.get(path, ""))
    if all(source.same_program(path, tree.get(path), base.get(path)) for path in changed):
        raise Refused("no_change", "nothing but layout and comments differs" if changed else "trees are equal")
    return Admitted(tree, changed)


def _check_text(path: str, text: str, old: str) -> None:
    if len(text.encode()) > MAX_FILE_BYTES:
        raise Refused("file_too_large", path)
    fault = source.text_fault(text, old)
    if fault:
        raise Refused(fault, path)


class _Lines:
    """The diff's lines with a reading position; a final newline is required of every line."""

    def __init__(self, text: str) -> None:
        if not text.endswith("\n"):
            raise Refused("grammar", "the last line has no newline")
        self._lines = text[:-1].split("\n")
        self._at = 0

    @property
    def ended(self) -> bool:
        return self._at >= len(self._lines)

    def peek(self) -> str:
        return "" if self.ended else self._lines[self._at]

    def take(self) -> str:
        if self.ended:
            raise Refused("grammar", "the diff ends in the middle")
        self._at += 1
        return self._lines[self._at - 1]

    def fail(self, what: str) -> Refused:
        return Refused("grammar", f"line {self._at}: {what}")


def _path(line: str, marker: str, prefix: str, lines: _Lines) -> str | None:
    if not line.startswith(marker):
        raise lines.fail(f"expected {marker.strip()!r}")
    name = line[len(marker) :]
    if name == "/dev/null":
        return None
    if not name.startswith(prefix):
        raise lines.fail(f"expected {prefix}PATH or /dev/null")
    path = name[len(prefix) :]
    fault = paths.name_fault(path)
    if fault:
        raise Refused(fault, ascii(path[:80]))
    return path


def _header(lines: _Lines) -> tuple[str | None, str | None]:
    """(old path, new path), None for /dev/null; optional extended headers must agree with them."""
    git: str | None = None
    mode = ""
    if lines.peek().startswith("diff --git "):
        git = lines.take()
        mode = _MODES.get(lines.peek(), "")
        if mode:
            lines.take()
        if lines.peek().startswith("index ") and not _INDEX.match(lines.take()):
            raise lines.fail("index line")
    old = _path(lines.take(), "--- ", "a/", lines)
    new = _path(lines.take(), "+++ ", "b/", lines)
    if old is None and new is None:
        raise lines.fail("both sides are /dev/null")
    if old is not None and new is not None and old != new:
        raise Refused("rename", f"{old} to {new}")
    if git is not None:
        path = old or new
        if git != f"diff --git a/{path} b/{path}":
            raise lines.fail("diff --git names another path")
        if (mode == "new") != (old is None) or (mode == "deleted") != (new is None):
            raise lines.fail("file mode line and paths disagree")
    return old, new


def _one_file(
    lines: _Lines, tree: dict[str, str], named: set[str], base: Mapping[str, str], globs: Sequence[str]
) -> None:
    old, new = _header(lines)
    path = old or new or ""
    if path in named:
        raise Refused("twice", path)
    named.add(path)
    if len(named) > MAX_FILES:
        raise Refused("too_many_files")
    if not paths.allowed(path, globs):
        raise Refused("path_not_allowed", path)
    if old is None:
        if path in base:
            raise Refused("exists", path)
        fault = paths.addition_fault(path, base, tree)
        if fault:
            raise Refused(fault, path)
    elif path not in base:
        raise Refused("missing", path)
    text = _hunks(lines, base.get(path, "") if old is not None else "")
    if new is None:
        if text:
            raise Refused("context", f"{path}: a deletion must remove every line")
        del tree[path]
    else:
        tree[path] = text


def _hunks(lines: _Lines, old_text: str) -> str:
    """The text after all hunks of one file. A text is lines that end in newlines, the last one perhaps not."""
    old = _kept(old_text)
    out: list[str] = []
    at = 0
    changed = 0
    first = True
    while first or lines.peek().startswith("@@ "):
        first = False
        match = _HUNK.match(lines.take())
        if match is None:
            raise lines.fail("expected @@ -start,count +start,count @@")
        old_start, old_count, new_start, new_count = _numbers(match)
        begin = old_start - 1 if old_count else old_start
        if not at <= begin <= len(old):
            raise Refused("context", f"hunk at old line {old_start}")
        out += old[at:begin]
        if len(out) != (new_start - 1 if new_count else new_start):
            raise Refused("context", f"hunk at new line {new_start}")
        at, edits = _body(lines, old, begin, old_count, new_count, out, MAX_CHANGED_LINES - changed)
        if not edits:
            raise lines.fail("a hunk that changes nothing")
        changed += edits
    out += old[at:]
    if any(not line.endswith("\n") for line in out[:-1]):
        raise Refused("context", "a line without newline that is not the last")
    return "".join(out)


def _kept(text: str) -> list[str]:
    """Lines with their newlines, split at "\\n" only (str.splitlines would also split at form feeds and others)."""
    parts = text.split("\n")
    return [part + "\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def _numbers(match: re.Match[str]) -> tuple[int, int, int, int]:
    return (
        int(match[1]),
        1 if match[2] is None else int(match[2]),
        int(match[3]),
        1 if match[4] is None else int(match[4]),
    )


def _body(
    lines: _Lines, old: list[str], at: int, old_count: int, new_count: int, out: list[str], most: int
) -> tuple[int, int]:
    """Read one hunk's lines: next old position, and how many lines it adds or removes, `most` at most."""
    edits = 0
    while old_count or new_count:
        line = lines.take()
        mark, text = line[:1], line[1:]
        ending = "\n"
        if lines.peek() == _NO_NEWLINE:
            lines.take()
            ending = ""
        if mark not in (" ", "-", "+"):
            raise lines.fail("expected a line that begins with a space, - or +")
        if mark != "+":
            if not old_count or at >= len(old) or old[at] != text + ending:
                raise Refused("context", f"old line {at + 1} is not as the diff says")
            at += 1
            old_count -= 1
        if mark != "-":
            if not new_count:
                raise lines.fail("more new lines than the hunk says")
            out.append(text + ending)
            new_count -= 1
        edits += mark != " "
        if edits > most:
            raise Refused("too_many_lines")
    return at, edits
