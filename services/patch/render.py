"""A workspace's change as a unified diff in exactly the grammar that the verifier admits."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence

_NO_NEWLINE = "\\ No newline at end of file\n"
_CONTEXT = 3
_Span = tuple[int, int, int, int]
"""Lines i1..i2-1 of the old text become lines j1..j2-1 of the new one."""


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
    for group in _groups(changed_spans(before, after)):
        first, last = group[0], group[-1]
        lead = min(_CONTEXT, first[0])
        tail = min(_CONTEXT, len(before) - last[1])
        old_range, new_range = _range(first[0] - lead, last[1] + tail), _range(first[2] - lead, last[3] + tail)
        out.append(f"@@ -{old_range} +{new_range} @@\n")
        at = first[0] - lead
        for i1, i2, j1, j2 in group:
            out += [_line(" ", line) for line in before[at:i1]]
            out += [_line("-", line) for line in before[i1:i2]]
            out += [_line("+", line) for line in after[j1:j2]]
            at = i2
        out += [_line(" ", line) for line in before[at : last[1] + tail]]
    return "".join(out)


def _groups(spans: Sequence[_Span]) -> list[list[_Span]]:
    """Changes whose lines of context would touch, together."""
    groups: list[list[_Span]] = []
    for span in spans:
        if groups and span[0] - groups[-1][-1][1] <= 2 * _CONTEXT:
            groups[-1].append(span)
        else:
            groups.append([span])
    return groups


def changed_spans(before: Sequence[str], after: Sequence[str]) -> list[_Span]:
    """What differs, in order. Work grows as n log n with the lines, whatever stands in them.

    Lines that both sides hold exactly once, in the same order, are taken for each other, and equal lines beside them
    too; what lies between is changed as a whole.
    """
    start, ends = _equal(before, after, 0, len(before), 0, len(after))
    stop = len(before) - ends, len(after) - ends
    spans: list[_Span] = []
    i, j = start, start
    for x, y in [*_anchors(before, after, start, *stop), stop]:
        same, back = _equal(before, after, i, x, j, y)
        if i + same < x - back or j + same < y - back:
            spans.append((i + same, x - back, j + same, y - back))
        i, j = x + 1, y + 1
    return spans


def _equal(before: Sequence[str], after: Sequence[str], i: int, x: int, j: int, y: int) -> tuple[int, int]:
    """How many lines of before[i:x] and after[j:y] are equal from their start, and of the rest from their end."""
    size = min(x - i, y - j)
    same = next((k for k in range(size) if before[i + k] != after[j + k]), size)
    size -= same
    back = next((k for k in range(size) if before[x - 1 - k] != after[y - 1 - k]), size)
    return same, back


def _anchors(before: Sequence[str], after: Sequence[str], start: int, x: int, y: int) -> list[tuple[int, int]]:
    """Pairs of lines unique on both sides of start..x and start..y: the longest series that keeps its order."""
    once = [line for line, count in Counter(before[start:x]).items() if count == 1]
    theirs = Counter(after[start:y])
    at = {line: number for number, line in enumerate(after[start:y], start)}
    ours = {line: number for number, line in enumerate(before[start:x], start)}
    pairs = [(ours[line], at[line]) for line in once if theirs.get(line) == 1]  # in the order of `before`
    ends: list[int] = []
    tops: list[int] = []
    earlier: list[int] = []
    for number, (_, place) in enumerate(pairs):
        rank = bisect_left(ends, place)
        earlier.append(tops[rank - 1] if rank else -1)
        ends[rank : rank + 1] = [place]
        tops[rank : rank + 1] = [number]
    found = []
    number = tops[-1] if tops else -1
    while number >= 0:
        found.append(pairs[number])
        number = earlier[number]
    return found[::-1]


def _range(start: int, stop: int) -> str:
    count = stop - start
    return f"{start + 1 if count else start},{count}"


def _line(mark: str, line: str) -> str:
    return mark + line if line.endswith("\n") else f"{mark}{line}\n{_NO_NEWLINE}"
