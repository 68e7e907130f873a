"""References and inputs of the programs about texts and expressions."""

import re
from random import Random
from typing import Any

from services.tasks.quixbugs import draws

_OPERATORS = "+-*/"


def is_valid_parenthesization(parens: str) -> bool:
    """Whether taking away innermost pairs leaves nothing."""
    while "()" in parens:
        parens = parens.replace("()", "")
    return parens == ""


def _parens(rng: Random) -> tuple[Any, ...]:
    good = _balanced(rng, rng.randint(1, 8))
    place = rng.randrange(len(good))
    return (
        rng.choice(
            (
                "",
                good,
                _balanced(rng, 40),
                good[:place] + "(" * rng.randint(1, 2) + good[place:],
                good + "(" * rng.randint(1, 3),
                good + ")(" + good,
                ")" + good + "(",
                good[:place] + good[place + 1 :],
                draws.word(rng, 1, 9, "()"),
            )
        ),
    )


def _balanced(rng: Random, pairs: int) -> str:
    out, opened = "", 0
    while len(out) < 2 * pairs:
        left = 2 * pairs - len(out)
        up = opened == 0 or (opened < left and rng.random() < 0.5)
        opened += 1 if up else -1
        out += "(" if up else ")"
    return out


def lcs_length(s: str, t: str) -> int:
    """Length of the longest common substring."""
    pieces = {s[i:j] for i in range(len(s)) for j in range(i + 1, len(s) + 1)}
    return max((len(piece) for piece in pieces if piece in t), default=0)


def _lcs_length(rng: Random) -> tuple[Any, ...]:
    if rng.random() < 0.2:
        shared = draws.word(rng, 2, 6, "abc")
        return tuple(draws.word(rng, 0, 5, "ab") + shared + draws.word(rng, 0, 5, "bc") for _ in range(2))
    return draws.pair_of_words(rng, 9)


def levenshtein(source: str, target: str) -> int:
    """Fewest insertions, removals and changes of one character between the two."""
    row = list(range(len(target) + 1))
    for i, char in enumerate(source, 1):
        above, row = row, [i]
        for j, other in enumerate(target, 1):
            row.append(min(above[j - 1] + (char != other), above[j] + 1, row[-1] + 1))
    return row[-1]


def _levenshtein(rng: Random) -> tuple[Any, ...]:
    one, other = draws.pair_of_words(rng, 5)
    kind = rng.randrange(6)
    if kind == 0:
        shared = draws.word(rng, 2, 3, "abcd")
        return shared + one[:3], shared + other[:3]
    if kind == 1:  # neighbours change places
        letters = rng.sample("abcde", rng.randint(2, 5))
        place = rng.randrange(len(letters) - 1)
        swapped = [*letters[:place], letters[place + 1], letters[place], *letters[place + 2 :]]
        return "".join(letters), "".join(swapped)
    if kind == 2:  # one letter more or less, none of them twice
        letters = rng.sample("abcdefg", rng.randint(3, 6))
        place = rng.randrange(len(letters) - 1)
        pair = "".join(letters), "".join(letters[:place] + letters[place + 1 :])
        return pair if rng.random() < 0.3 else (pair[1], pair[0])
    return one, other


def _short(source: str, target: str) -> bool:
    # The plain recursion over two words takes time that grows about sixfold with a character of both.
    return len(source) + len(target) <= 13


def longest_common_subsequence(a: str, b: str) -> str:
    """A longest common subsequence; any other of its length is as right."""
    best = {(i, j): "" for i in range(len(a) + 1) for j in range(len(b) + 1) if 0 in (i, j)}
    for i, char in enumerate(a, 1):
        for j, other in enumerate(b, 1):
            same = best[i - 1, j - 1] + char if char == other else ""
            best[i, j] = max(same, best[i - 1, j], best[i, j - 1], key=len)
    return best[len(a), len(b)]


def a_longest(args: tuple[Any, ...], value: Any) -> bool:
    """Whether `value` is a subsequence of both words, and none is longer."""
    a, b = args
    return (
        type(value) is str
        and _inside(value, a)
        and _inside(value, b)
        and len(value) == len(longest_common_subsequence(a, b))
    )


def _inside(part: str, whole: str) -> bool:
    rest = iter(whole)
    return all(char in rest for char in part)


def _subsequence_pair(rng: Random) -> tuple[Any, ...]:
    if rng.random() < 0.4:
        return draws.word(rng, 4, 7, "abcd"), draws.word(rng, 4, 7, "abcd")
    return draws.pair_of_words(rng, 7)


def _few_letters(a: str, b: str) -> bool:
    return len(a) + len(b) <= 22


def wrap(text: str, cols: int) -> list[str]:
    """Lines that join to the text; each ends before the last space that fits, or at `cols` where no space does."""
    lines = []
    while len(text) > cols:
        spaces = [found.start() for found in re.finditer(" ", text[: cols + 1])]
        end = max(spaces, default=cols)
        if end == 0:
            raise ValueError("a word of cols or more characters behind a space is outside the precondition")
        lines.append(text[:end])
        text = text[end:]
    return [*lines, text]


def _wrap(rng: Random) -> tuple[Any, ...]:
    cols = rng.choice((2, 3, 5, 8, 8, 12))
    words = [draws.word(rng, 1, cols - 1, "abcde,") for _ in range(rng.randint(2, 9))]
    kind = rng.randrange(8)
    if kind == 0:
        return rng.choice(("", " " * rng.randint(1, cols))), cols
    if kind == 1:  # one word, cut where it must be
        return "x" * rng.choice((cols - 1, cols, cols + 1, 2 * cols, 3 * cols + 1)), cols
    if kind == 2:
        return draws.word(rng, 1, 6, "ab"), 1
    if kind == 3:
        words[0] = draws.word(rng, cols, 3 * cols, "abc")
    if kind == 4:
        return " " * rng.randint(0, 1) + "  ".join(words) + " " * rng.randint(0, 2), cols
    if kind == 5:  # lines that fit exactly
        return " ".join("y" * (cols - 1) for _ in range(rng.randint(2, 5))), cols
    return " ".join(words), cols


def rpn_eval(tokens: list[Any]) -> float:
    """Value of a postfix expression, read from its end; a division by zero raises as Python's does."""
    waiting = list(tokens)

    def value() -> float:
        token = waiting.pop()
        if isinstance(token, float):
            return token
        right, left = value(), value()
        if token == "+":
            return left + right
        if token == "-":
            return left - right
        return left * right if token == "*" else left / right

    return value()


def _rpn_eval(rng: Random) -> tuple[Any, ...]:
    kind = rng.randrange(7)
    if kind == 0:
        return ([_number(rng)],)
    if kind == 1:
        return ([_number(rng), 0.0, "/"],)
    if kind == 2:
        return ([_number(rng), _number(rng), rng.choice("-/")],)
    return (_postfix(rng, rng.randint(2, 7)),)


def _number(rng: Random) -> float:
    return rng.choice((float(rng.randint(1, 9)), float(rng.randint(-9, -1)), float(rng.randint(1, 99)), 0.5, 2.25))


def _postfix(rng: Random, leaves: int) -> list[Any]:
    if leaves == 1:
        return [_number(rng)]
    left = rng.randint(1, leaves - 1)
    return [*_postfix(rng, left), *_postfix(rng, leaves - left), rng.choice(_OPERATORS)]


def shunting_yard(tokens: list[Any]) -> list[Any]:
    """Postfix form of an infix expression; times and divide bind tighter, and all of them to the left."""
    if not tokens:
        return []
    for operators in ("+-", "*/"):
        places = [place for place, token in enumerate(tokens) if token in tuple(operators)]
        if places:
            last = places[-1]
            return [*shunting_yard(tokens[:last]), *shunting_yard(tokens[last + 1 :]), tokens[last]]
    return list(tokens)


def _shunting_yard(rng: Random) -> tuple[Any, ...]:
    kind = rng.randrange(9)
    if kind == 8:
        return ([],)
    if kind < 3:
        operators = [rng.choice(_OPERATORS) for _ in range(kind)]
    elif kind == 3:  # of one rank, which binds to the left
        operators = [rng.choice(rng.choice(("+-", "*/"))) for _ in range(rng.randint(2, 3))]
        operators = rng.choice((["*", "/"], ["-", "-"], operators))
    elif kind == 4:  # two operators wait when one of lower rank comes
        operators = [rng.choice("+-"), rng.choice("*/"), rng.choice("+-")]
    else:
        operators = [rng.choice(rng.choice((_OPERATORS, "*/"))) for _ in range(rng.randint(3, 11))]
    tokens: list[Any] = []
    for operator in operators:
        tokens += [rng.randint(-3, 60), operator]
    return ([*tokens, rng.randint(0, 60)],)
