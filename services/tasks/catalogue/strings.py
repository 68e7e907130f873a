"""Strings: scanning, counting and rewriting short words."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from services.tasks.catalogue import draws
from services.tasks.catalogue.problem import define
from services.tasks.domain import Domain, Stratum
from services.tasks.strata import ASTRAL, EVERY, LETTERS, MARKS, MOST, OTHERS, SMALL, TEXT, other_than, text, texts


def _word(rng: Random) -> tuple[Any, ...]:
    return (draws.word(rng),)


def _nearly_palindrome(rng: Random) -> tuple[Any, ...]:
    half = draws.word(rng, 0, 2)
    s = half + rng.choice(("", "a", "b")) + half[::-1]
    if s and rng.random() < 0.7:
        i = rng.randrange(len(s))
        s = s[:i] + rng.choice("abc") + s[i + 1 :]
    return (s,)


def _word_and_part(rng: Random) -> tuple[Any, ...]:
    return draws.word(rng, 0, 6, "ab"), draws.word(rng, 1, 3, "ab")[:2]


def _two_words(rng: Random) -> tuple[Any, ...]:
    stem = draws.word(rng, 0, 4)
    return stem + draws.word(rng, 0, 2), stem + draws.word(rng, 0, 2)


def _word_and_shift(rng: Random) -> tuple[Any, ...]:
    return draws.word(rng, 0, 4, "abcmxyz"), rng.randint(0, 9)


def _mirrored(rng: Random, s: str, alphabet: Sequence[str]) -> tuple[Any, ...]:
    """A palindrome of the text's length, made of its first half."""
    half = s[: len(s) // 2]
    return (half + s[len(half) : len(s) - len(half)] + half[::-1],)


def _broken(rng: Random, count: int, alphabet: Sequence[str], pair: int) -> tuple[Any, ...]:
    """A palindrome of `count` characters but for one of the pair of this number (0: the outermost, -1: the middle)."""
    (s,) = _mirrored(rng, text(rng, count, alphabet), alphabet)
    place = pair % (count // 2)
    if rng.random() < 0.5:
        place = count - 1 - place
    return (s[:place] + other_than(rng, s[place], alphabet) + s[place + 1 :],)


def _but_for_one(rng: Random, count: int, extra: str, alphabet: str = LETTERS) -> tuple[Any, ...]:
    """A palindrome to whoever leaves out one character, and only to them."""
    (s,) = _mirrored(rng, text(rng, count, alphabet), alphabet)
    place = rng.randrange(1, count // 2)
    return (s[:place] + rng.choice(extra) + s[place:],)


def _of_two_cases(rng: Random) -> tuple[Any, ...]:
    """A palindrome to whoever takes upper and lower case for one."""
    (s,) = _mirrored(rng, text(rng, rng.randint(6, 30), "abcdexyz"), LETTERS)
    place = rng.randrange(len(s) // 2)
    return (s[:place] + s[place].upper() + s[place + 1 :],)


_PALINDROMES = (
    *texts(_mirrored),
    Stratum("anything", lambda rng: (text(rng, rng.randint(2, 40), LETTERS),)),
    Stratum("the outermost pair differs", lambda rng: _broken(rng, rng.randint(8, 40), SMALL, 0)),
    Stratum("the middle pair differs", lambda rng: _broken(rng, rng.randint(10, 40), SMALL, -1)),
    Stratum("one pair differs", lambda rng: _broken(rng, rng.randint(9, 40), LETTERS, rng.randrange(40)), 3),
    Stratum("hundreds, the middle pair differs", lambda rng: _broken(rng, rng.randint(260, MOST), "xy", -1)),
    Stratum(
        "hundreds, one pair differs", lambda rng: _broken(rng, rng.randint(260, MOST), LETTERS, rng.randint(52, 129))
    ),
    Stratum("other scripts, one pair differs", lambda rng: _broken(rng, rng.randint(4, 20), OTHERS, rng.randrange(9))),
    Stratum("beyond 16 bits, one pair differs", lambda rng: _broken(rng, rng.randint(4, 20), ASTRAL, rng.randrange(9))),
    Stratum("but for a mark", lambda rng: _but_for_one(rng, rng.randint(6, 30), MARKS)),
    Stratum("but for a blank", lambda rng: _but_for_one(rng, rng.randint(6, 30), " ")),
    Stratum("but for a digit", lambda rng: _but_for_one(rng, rng.randint(6, 30), "0123456789")),
    Stratum("but for a capital", lambda rng: _but_for_one(rng, 2 * rng.randint(3, 15), "ABC", "abcxyz")),
    Stratum("but for upper case", _of_two_cases),
    Stratum("a word twice", lambda rng: (text(rng, rng.randint(5, 20), LETTERS) * 2,)),
)


def _with_part(rng: Random, s: str, alphabet: Sequence[str]) -> tuple[Any, ...]:
    """The text with a piece of it, or with one that is not in it."""
    if not s or rng.random() < 0.2:
        return s, text(rng, rng.randint(1, 4), alphabet)
    first = rng.randrange(len(s))
    return s, s[first : first + rng.randint(1, 4)]


def _planted(rng: Random, size: int, times: int, alphabet: Sequence[str]) -> tuple[Any, ...]:
    """A piece so many times among others, at the start and at the end, and like ones that are not the same."""
    p = text(rng, size, alphabet)
    place = rng.randrange(1, size - 1)
    like = p[:place] + other_than(rng, p[place], alphabet) + p[place + 1 :]
    mixed = p[:1] + "".join(sorted(p[1:-1], reverse=p[1:-1] == "".join(sorted(p[1:-1])))) + p[-1:]
    middle = [p] * (times - 2) + [like, like, mixed]
    rng.shuffle(middle)
    return p + "".join(middle) + p, p


def _planted_late(rng: Random, size: int) -> tuple[Any, ...]:
    """A long piece twice, and one that differs from it in one of the last characters."""
    p = text(rng, size, LETTERS)
    place = rng.randrange(size - 4, size)
    return p + p[:place] + other_than(rng, p[place], LETTERS) + p[place + 1 :] + p, p


_PARTS = (
    *texts(_with_part),
    Stratum("one character again and again", lambda rng: ("a" * rng.randint(5, 40), "a" * rng.randint(2, 5))),
    Stratum("hundreds of one character", lambda rng: ("b" * rng.randint(280, MOST), "b" * rng.randint(1, 20))),
    Stratum("overlapping", lambda rng: ("ab" * rng.randint(4, 30) + "a", rng.choice(("aba", "abab", "babab")))),
    Stratum("longer than the text", lambda rng: (text(rng, rng.randint(0, 9)), text(rng, rng.randint(10, 20)))),
    Stratum("the text itself", lambda rng: (s := text(rng, rng.randint(1, 40), LETTERS), s)),
    Stratum("only at the end", lambda rng: ("x" * rng.randint(3, 200) + (p := text(rng, 3)), p)),
    Stratum("only at the start", lambda rng: ((p := text(rng, 3)) + "x" * rng.randint(3, 200), p)),
    Stratum("like ones", lambda rng: _planted(rng, rng.randint(4, 8), rng.randint(2, 6), LETTERS), 2),
    Stratum("a long one", lambda rng: _planted(rng, rng.randint(18, 34), rng.randint(2, 4), LETTERS)),
    Stratum("a longer one", lambda rng: _planted_late(rng, rng.randint(55, 60)), 2),
    Stratum("with digits and blanks", lambda rng: _planted(rng, 6, rng.randint(3, 6), "0123456789 "), 2),
    Stratum("like ones of other scripts", lambda rng: _planted(rng, 4, rng.randint(2, 6), OTHERS)),
    Stratum("a blank at its end", lambda rng: ("a a b ab a" * rng.randint(1, 9), rng.choice(("a ", " a", "b "))), 3),
    Stratum("of another case", lambda rng: ("abAB" * rng.randint(2, 9) + "Ab", rng.choice(("ab", "AB", "Ab", "bA")))),
    Stratum(
        "a pattern to others",
        lambda rng: ("a.c abc a+c (a) [ab] $" * rng.randint(1, 9), rng.choice((".", "a.c", "+", "(a)", "[ab]", "$"))),
        2,
    ),
)


def _shared(rng: Random, s: str, alphabet: Sequence[str]) -> tuple[Any, ...]:
    """The text, and one that begins as it does and then goes on otherwise, or ends."""
    place = rng.randint(0, len(s))
    rest = text(rng, rng.randint(0, 6), alphabet)
    return rng.choice(((s, s[:place] + rest), (s[:place] + rest, s)))


def _one_differs(rng: Random, count: int, place: int, alphabet: Sequence[str]) -> tuple[Any, ...]:
    """Two texts of one length that differ in one place only."""
    s = text(rng, count, alphabet)
    return s, s[:place] + other_than(rng, s[place], alphabet) + s[place + 1 :]


_STARTS = (
    *texts(_shared),
    Stratum("one of them empty", lambda rng: rng.choice((("", text(rng, 9)), (text(rng, 9), "")))),
    Stratum("equal", lambda rng: (s := text(rng, rng.randint(9, 40), LETTERS), s)),
    Stratum("hundreds, equal", lambda rng: (s := text(rng, rng.randint(260, MOST), LETTERS), s)),
    Stratum("the first is the start", lambda rng: (s := text(rng, rng.randint(9, 140), LETTERS), s + text(rng, 9))),
    Stratum("the second is the start", lambda rng: ((s := text(rng, rng.randint(9, 140), LETTERS)) + text(rng, 9), s)),
    Stratum("differ in the first place only", lambda rng: _one_differs(rng, rng.randint(5, 40), 0, LETTERS)),
    Stratum("differ in one place only", lambda rng: _one_differs(rng, 40, rng.randrange(9, 39), SMALL), 2),
    Stratum("hundreds, differ in one place only", lambda rng: _one_differs(rng, 300, rng.randint(110, 299), LETTERS)),
    Stratum("differ in case", lambda rng: ("Word and more", rng.choice(("Word And more", "word and more", "WORD")))),
    Stratum("the same letters in another order", lambda rng: (s := text(rng, 12, LETTERS), s[:4] + s[4:][::-1])),
    Stratum("with marks and blanks", lambda rng: (s := text(rng, 20, MARKS), s[: rng.randint(5, 19)] + "x")),
    Stratum("of other scripts", lambda rng: (s := text(rng, 20, OTHERS + ASTRAL), s[: rng.randint(5, 19)] + "x")),
)


def _runs(rng: Random, count: int, longest: int, alphabet: Sequence[str]) -> tuple[Any, ...]:
    """Runs of one to `longest` equal characters, up to `MOST` in all; the first and the last run have more than one."""
    runs = [text(rng, 1, alphabet) * rng.choice((1, 2, rng.randint(1, longest))) for _ in range(count)]
    runs[0], runs[-1] = runs[0] * 2, runs[-1] * 2
    return ("".join(runs)[:MOST],)


_SQUEEZED = (
    *texts(lambda rng, s, alphabet: (s,)),
    Stratum("runs", lambda rng: _runs(rng, rng.randint(4, 12), 4, SMALL), 3),
    Stratum("long runs", lambda rng: _runs(rng, rng.randint(3, 6), 40, LETTERS)),
    Stratum("hundreds in short runs", lambda rng: _runs(rng, 200, 3, LETTERS)),
    Stratum("one run", lambda rng: (rng.choice(EVERY) * rng.randint(3, 40),)),
    Stratum("one run of hundreds", lambda rng: (rng.choice("az9 é") * rng.randint(260, MOST),)),
    Stratum("alternating", lambda rng: (rng.choice(("ab", "aA", "01", " .")) * rng.randint(5, 40),)),
    Stratum("runs of digits", lambda rng: _runs(rng, rng.randint(4, 12), 4, "0123456789")),
    Stratum("runs of marks and blanks", lambda rng: _runs(rng, rng.randint(4, 12), 4, MARKS)),
    Stratum("runs of other scripts", lambda rng: _runs(rng, rng.randint(4, 12), 4, OTHERS + ASTRAL)),
    Stratum("upper beside lower case", lambda rng: _runs(rng, rng.randint(8, 20), 3, "aA")),
    Stratum("no two alike", lambda rng: ("".join(rng.sample(EVERY, 60)),)),
)

_ALPHABET = "abcdefghijklmnopqrstuvwxyz"


def _shifted(n: Callable[[Random], int], count: int = 12) -> Callable[[Random], tuple[Any, ...]]:
    """Letters with both ends of the alphabet among them, and a shift."""
    return lambda rng: (text(rng, count, _ALPHABET) + rng.choice(("az", "za")) + text(rng, 3, "abyz"), n(rng))


_SHIFTED = (
    Stratum("empty", lambda rng: ("", rng.randint(-99, 99))),
    Stratum("one", lambda rng: (rng.choice(_ALPHABET), rng.randint(-30, 30)), 2),
    Stratum("the whole alphabet", lambda rng: (_ALPHABET, rng.randint(1, 25)), 2),
    Stratum("tens", _shifted(lambda rng: rng.randint(1, 25), 40)),
    Stratum("above a hundred", _shifted(lambda rng: rng.randint(1, 25), 110)),
    Stratum("hundreds", _shifted(lambda rng: rng.randint(-25, 25) or 1, 300)),
    Stratum("no shift", _shifted(lambda rng: 0)),
    Stratum("once round", _shifted(lambda rng: 26)),
    Stratum("10 to 25", _shifted(lambda rng: rng.randint(10, 25))),
    Stratum("27 to 51", _shifted(lambda rng: rng.randint(27, 51))),
    Stratum("53 to 77", _shifted(lambda rng: rng.randint(53, 77))),
    Stratum("78 to 130", _shifted(lambda rng: rng.randint(79, 103))),
    Stratum("hundreds round", _shifted(lambda rng: 26 * rng.randint(5, 90) + rng.randint(1, 25)), 4),
    Stratum("-1 to -25", _shifted(lambda rng: -rng.randint(1, 25)), 2),
    Stratum("-26", _shifted(lambda rng: -26)),
    Stratum("below -26", _shifted(lambda rng: -rng.choice((rng.randint(27, 51), rng.randint(53, 99999))))),
    Stratum("beyond 2^31", _shifted(lambda rng: 2**32 + rng.randint(0, 25)), 2),
    Stratum("beyond 2^53", _shifted(lambda rng: 10**18 - rng.randint(0, 25)), 2),
    Stratum("below -2^31", _shifted(lambda rng: -(2**32) - rng.randint(0, 25)), 2),
    Stratum("below -2^53", _shifted(lambda rng: -(10**18) + rng.randint(0, 25)), 2),
)

PROBLEMS = (
    define(
        "strings",
        """
def is_palindrome(s):
    i = 0
    j = len(s) - 1
    while i < j:
        if s[i] != s[j]:
            return False
        i += 1
        j -= 1
    return True
""",
        _nearly_palindrome,
        domain=Domain(
            f"s: {TEXT}. The answer is whether it reads the same backwards; True for the empty text.",
            _PALINDROMES,
        ),
    ),
    define(
        "strings",
        """
def count_part(s, p):
    n = 0
    for i in range(len(s) - len(p) + 1):
        if s[i:i + len(p)] == p:
            n += 1
    return n
""",
        _word_and_part,
        domain=Domain(
            f"s: {TEXT}; p: such a text of at least one character. The answer is the number of places at which p "
            "begins in s, overlapping ones counted each.",
            _PARTS,
        ),
    ),
    define(
        "strings",
        """
def common_prefix(s, p):
    i = 0
    while i < len(s) and i < len(p) and s[i] == p[i]:
        i += 1
    return s[:i]
""",
        _two_words,
        domain=Domain(
            f"s, p: {TEXT}. The answer is the longest text with which both begin.",
            _STARTS,
        ),
    ),
    define(
        "strings",
        """
def squeeze(s):
    out = s[:1]
    for c in s[1:]:
        if c != out[-1]:
            out += c
    return out
""",
        _word,
        domain=Domain(
            f"s: {TEXT}. The answer is s with every run of one character cut down to a single one.",
            _SQUEEZED,
        ),
    ),
    define(
        "strings",
        """
def shift(s, n):
    out = ''
    for c in s:
        out += chr((ord(c) - 97 + n) % 26 + 97)
    return out
""",
        _word_and_shift,
        domain=Domain(
            f"s: up to {MOST} letters from a to z; n: an int from -10^18 to 10^18. The answer is s with every letter "
            "moved n places on in the alphabet, round from z to a (backwards where n is negative).",
            _SHIFTED,
        ),
    ),
)
