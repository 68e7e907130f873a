"""What a candidate's text may hold, and whether a change of it is more than layout and comments.

Nothing here parses or compiles: hostile text can bring the compiler down (C stack), so that happens in the jail only.
The tokenizer neither recurses nor builds trees, and reading stops at the first token that differs.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from itertools import zip_longest

# Control characters, line and paragraph separators, private use, and the default-ignorable code points of Unicode
# (bidirectional controls, zero widths, fillers, variation selectors, tags): a reader sees other code than what runs.
HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ue000-\uf8ff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff\U000f0000-\U0010ffff]"
)
_COOKIE = re.compile(r"coding[:=][ \t]*([-\w.]+)", re.ASCII)
_MAX_COMPARED = 128 * 1024
_LAYOUT = (tokenize.COMMENT, tokenize.NL)
_NO_TEXT = (tokenize.INDENT, tokenize.NEWLINE)


def text_fault(new: str, old: str) -> str | None:
    """Why `new` may not stand where `old` stood ("" for a new file); None when it may.

    Characters that a reader cannot see are kept where the fixture has exactly that line, and refused elsewhere.
    """
    for line in new.split("\n", 2)[:2]:
        cookie = _COOKIE.search(line) if line.lstrip(" \t\f").startswith("#") else None
        if cookie and cookie[1].lower().replace("_", "-") not in ("utf-8", "utf8"):
            return "encoding_cookie"
    if HIDDEN.search(new) is None:
        return None
    kept = frozenset(old.split("\n"))
    for line in new.split("\n"):
        found = HIDDEN.search(line)
        if found and line not in kept:
            return "control_character" if found[0] <= "\x7f" else "invisible_character"
    return None


def same_program(path: str, new: str | None, old: str | None) -> bool:
    """Whether a change is none: Python of equal tokens (comments, blank lines and layout aside); else equal lines.

    A changed docstring, an unequal way to write the same expression, and any change of a very large file is a change,
    and judged by running it.
    """
    if new is None or old is None or max(len(new), len(old)) > _MAX_COMPARED:
        return False
    if not path.endswith(".py"):
        return _lines(new) == _lines(old)
    try:
        return all(a == b for a, b in zip_longest(_tokens(new), _tokens(old)))
    except Exception:  # whatever a tokenizer of any version says of broken text: it is for the jail to judge
        return False


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.split("\n") if line.strip()]


def _tokens(text: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _LAYOUT:
            yield token.type, "" if token.type in _NO_TEXT else token.string
