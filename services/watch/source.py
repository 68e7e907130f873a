"""Parses a candidate's source in a trusted process only within bounds that the compiler's own stack can bear."""

from __future__ import annotations

import ast
import io
import tokenize
import warnings

MAX_CHARS = 64 * 1024
MAX_TOKENS_IN_A_LINE = 600
MAX_BRACKETS = 40
MAX_INDENTS = 40
MAX_ELIFS = 200
MAX_DIGITS = 400
MAX_FIELDS = 100
"""Brackets of any kind in one f-string that is one token (before Python 3.12): the compiler looks for each from the
string's start, and counts no nesting in it by itself."""
MAX_STEPS = 50_000
_CHARS_A_STEP = 4


class OverBudget(Exception):
    """The steps that one candidate is worth are spent; what was not looked at by then is not known."""


class Budget:
    """Steps of work that are left, shared by everything that is looked at in one candidate."""

    def __init__(self, steps: int = MAX_STEPS) -> None:
        self.left = steps

    def spend(self, steps: int) -> None:
        """Raises OverBudget, before the work is done."""
        self.left -= steps
        if self.left < 0:
            raise OverBudget


def parse(text: str, budget: Budget | None = None) -> ast.Module | None:
    """The syntax tree, or None for text that is no Python or more than the bounds above. Raises OverBudget.

    The compiler is written with recursion: hostile nesting can overflow its stack and end the process. What can nest
    (brackets, blocks, operators within one logical line, chains of elif) is counted on tokens first, which needs none.
    """
    if len(text) > MAX_CHARS:
        return None
    if budget is not None:
        budget.spend(len(text) // _CHARS_A_STEP)
    if not _bounded(text):
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def _bounded(text: str) -> bool:
    brackets = indents = line = elifs = digits = fields = 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            line += 1
            if token.type == tokenize.NEWLINE or (token.type == tokenize.NL and brackets <= 0):
                line = 0
            elif token.type == tokenize.INDENT:
                indents += 1
            elif token.type == tokenize.DEDENT:
                indents -= 1
            elif token.type == tokenize.OP:
                brackets += (token.string in "([{") - (token.string in ")]}")
            elif token.string == "elif":
                elifs += 1
            elif token.type == tokenize.NUMBER:
                digits = max(digits, len(token.string))
            elif token.type == tokenize.STRING:
                fields = max(fields, _fields(token.string))
            if max(brackets - MAX_BRACKETS, indents - MAX_INDENTS, elifs - MAX_ELIFS) > 0:
                return False
            if line > MAX_TOKENS_IN_A_LINE or digits > MAX_DIGITS or fields > MAX_FIELDS:
                return False
    except (tokenize.TokenError, SyntaxError, ValueError):
        return False
    return True


def _fields(literal: str) -> int:
    """Opening brackets in a string literal that has an f among the letters before its quote; else 0."""
    formatted = "f" in literal[: len(literal) - len(literal.lstrip("rbfuRBFU"))].lower()
    return sum(map(literal.count, "([{")) if formatted else 0
