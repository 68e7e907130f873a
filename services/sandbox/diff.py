"""A workspace's change as a unified diff in exactly the grammar that the verifier admits."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

_NO_NEWLINE = "\\ No newline at end of file\n"


def _lines(text: str) -> list[str]:
    parts = text.split("\n")
    return [part + "\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def render(base: Mapping[str, str], tree: Mapping[str, str]) -> str:
    """The diff from `base` to `tree` (path -> text), files in order of their path; "" when they are equal.

    Files that appear or vanish must hold at least one line.
    """
    return "".join(_one(path, base.get(path), tree.get(path)) for path in sorted(base.keys() | tree.keys()))


def _one(path: str, old: str | None, new: str | None) -> str:
    if old == new:
        return ""
    before, after = _lines(old or ""), _lines(new or "")
    head = "/dev/null" if old is None else f"a/{path}", "/dev/null" if new is None else f"b/{path}"
    out = [f"--- {head[0]}\n+++ {head[1]}\n"]
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for group in matcher.get_grouped_opcodes(3):
        old_range = _range(group[0][1], group[-1][2])
        new_range = _range(group[0][3], group[-1][4])
        out.append(f"@@ -{old_range} +{new_range} @@\n")
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                out += [_line(" ", line) for line in before[i1:i2]]
                continue
            out += [_line("-", line) for line in before[i1:i2]]
            out += [_line("+", line) for line in after[j1:j2]]
    return "".join(out)


def _range(start: int, stop: int) -> str:
    count = stop - start
    return f"{start + 1 if count else start},{count}"


def _line(mark: str, line: str) -> str:
    return mark + line if line.endswith("\n") else f"{mark}{line}\n{_NO_NEWLINE}"
