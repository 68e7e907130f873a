"""Parsing (a held-out family): from text to numbers, fields and truth."""

from random import Random
from typing import Any

from services.tasks.catalogue import draws
from services.tasks.catalogue.problem import define
from services.tasks.domain import Domain, Stratum
from services.tasks.strata import ASTRAL, LETTERS, MARKS, MOST, OTHERS, TEXT, text


def _brackets(rng: Random) -> tuple[Any, ...]:
    if rng.random() < 0.5:
        return (draws.word(rng, 0, 6, "()"),)
    s = ""
    for _ in range(rng.randint(0, 3)):
        s = rng.choice(("(" + s + ")", s + "()", "()" + s))
    return (s,)


def _number_text(rng: Random) -> tuple[Any, ...]:
    s = rng.choice(("", "-")) + str(rng.choice((0, rng.randint(1, 9), rng.randint(10, 99))))
    return (s + "x" if rng.random() < 0.15 else s,)


def _fields(rng: Random) -> tuple[Any, ...]:
    return draws.word(rng, 0, 6, "ab,"), ","


def _sum_text(rng: Random) -> tuple[Any, ...]:
    s = str(rng.randint(0, 9))
    for _ in range(rng.randint(0, 3)):
        s += rng.choice("+-") + str(rng.randint(0, 9))
    return (s,)


def _good(rng: Random, pairs: int) -> str:
    """Balanced brackets, so many pairs."""
    out, opened = "", 0
    while len(out) < 2 * pairs:
        up = opened == 0 or (opened < 2 * pairs - len(out) and rng.random() < 0.5)
        opened += 1 if up else -1
        out += "(" if up else ")"
    return out


def _without_one(rng: Random, s: str) -> str:
    place = rng.randrange(len(s))
    return s[:place] + s[place + 1 :]


_BALANCED = (
    Stratum("empty", lambda rng: ("",)),
    Stratum("one", lambda rng: (rng.choice("()"),)),
    Stratum("two", lambda rng: (rng.choice(("()", ")(", "((", "))")),), 2),
    Stratum("few", lambda rng: (_good(rng, rng.randint(2, 6)),), 2),
    Stratum("few, without one", lambda rng: (_without_one(rng, _good(rng, rng.randint(2, 6))),), 2),
    Stratum("tens", lambda rng: (_good(rng, rng.randint(8, 40)),), 2),
    Stratum("tens, without one", lambda rng: (_without_one(rng, _good(rng, rng.randint(8, 40))),)),
    Stratum("hundreds", lambda rng: (_good(rng, rng.randint(130, MOST // 2)),)),
    Stratum("hundreds, without one", lambda rng: (_without_one(rng, _good(rng, rng.randint(130, 150))),)),
    Stratum("deep", lambda rng: ("(" * (n := rng.randint(7, 40)) + ")" * n,)),
    Stratum("above a hundred deep", lambda rng: ("(" * (n := rng.randint(104, 150)) + ")" * n,)),
    Stratum("deep, one not closed", lambda rng: ("(" * (n := rng.randint(7, 120)) + ")" * (n - 1),)),
    Stratum("deep, one not opened", lambda rng: ("(" * (n := rng.randint(7, 120)) + ")" * (n + 1),)),
    Stratum("side by side", lambda rng: ("()" * rng.randint(7, 150),)),
    Stratum(
        "closed before opened", lambda rng: (_good(rng, rng.randint(1, 9)) + ")(" + _good(rng, rng.randint(1, 9)),), 2
    ),
    Stratum("as many of both, wrong at the end", lambda rng: (_good(rng, rng.randint(3, 60)) + "())(",)),
    Stratum("as many of both, wrong at the start", lambda rng: (")(" + _good(rng, rng.randint(3, 60)),)),
    Stratum("turned round", lambda rng: (")" * (n := rng.randint(2, 60)) + "(" * n,)),
    Stratum("one too many at the end", lambda rng: (_good(rng, rng.randint(3, 100)) + rng.choice("()"),), 2),
    Stratum("two too many at the end", lambda rng: (_good(rng, rng.randint(3, 60)) + rng.choice(("((", "))")),)),
)


def _numeral(rng: Random, count: int, sign: str = "") -> str:
    return sign + rng.choice("123456789") + text(rng, count - 1, "0123456789")


def _spoilt(rng: Random, spoiler: str) -> tuple[Any, ...]:
    """A numeral of either sign with something among its digits."""
    s = _numeral(rng, rng.randint(2, 6))
    place = rng.randint(1, len(s) - 1)
    return (rng.choice(("", "-")) + s[:place] + spoiler + s[place:],)


_NUMERALS = (
    Stratum("one digit", lambda rng: (rng.choice("0123456789"),)),
    Stratum("two digits", lambda rng: (_numeral(rng, 2),)),
    Stratum("three to nine digits", lambda rng: (_numeral(rng, rng.randint(3, 9)),), 2),
    Stratum("tens of digits, beyond 2^53", lambda rng: (_numeral(rng, rng.randint(18, 60)),)),
    Stratum("hundreds of digits", lambda rng: (_numeral(rng, rng.randint(260, 300)),)),
    Stratum("one digit, negative", lambda rng: ("-" + rng.choice("123456789"),)),
    Stratum("two to nine digits, negative", lambda rng: (_numeral(rng, rng.randint(2, 9), "-"),), 2),
    Stratum("beyond 2^53, negative", lambda rng: (_numeral(rng, rng.randint(18, 60), "-"),)),
    Stratum("around 2^31", lambda rng: (rng.choice(("", "-")) + str(2**31 + rng.randint(-1, 1)),)),
    Stratum("zero, negative", lambda rng: ("-0",)),
    Stratum("zeros at the front", lambda rng: (rng.choice(("", "-")) + "0" * rng.randint(1, 9) + _numeral(rng, 3),)),
    Stratum("zeros only", lambda rng: (rng.choice(("", "-")) + "0" * rng.randint(2, 9),)),
    Stratum(
        "a letter at the end",
        lambda rng: (_numeral(rng, rng.randint(1, 5), rng.choice(("", "-"))) + rng.choice(LETTERS),),
    ),
    Stratum("a letter at the front", lambda rng: (rng.choice(LETTERS) + _numeral(rng, rng.randint(1, 5)),)),
    Stratum("a letter inside", lambda rng: _spoilt(rng, rng.choice(LETTERS))),
    Stratum("a capital", lambda rng: (rng.choice(LETTERS).upper(),), 2),
    Stratum("capitals only", lambda rng: (text(rng, rng.randint(2, 6), "ABCDEFXYZ"),)),
    Stratum("letters only", lambda rng: (rng.choice(("", "-")) + text(rng, rng.randint(1, 6), LETTERS),)),
    Stratum("a minus inside", lambda rng: _spoilt(rng, rng.choice(("-", "--")))),
    Stratum("a minus at the end", lambda rng: (_numeral(rng, rng.randint(1, 5)) + "-",)),
    Stratum("an underscore inside", lambda rng: _spoilt(rng, "_")),
    Stratum("a plus at the front", lambda rng: ("+" + _numeral(rng, rng.randint(1, 5)),)),
    Stratum("a plus and a minus", lambda rng: (rng.choice(("-+", "+-")) + _numeral(rng, rng.randint(1, 5)),)),
    Stratum(
        "a blank at the front",
        lambda rng: (" " * rng.randint(1, 3) + _numeral(rng, rng.randint(1, 5), rng.choice(("", "-"))),),
    ),
    Stratum("a blank at the end", lambda rng: (_numeral(rng, rng.randint(1, 5)) + " " * rng.randint(1, 3),)),
    Stratum("a blank inside", lambda rng: _spoilt(rng, " ")),
    Stratum("a blank behind the minus", lambda rng: ("- " + _numeral(rng, rng.randint(1, 5)),)),
    Stratum("blanks or marks only", lambda rng: (rng.choice((" ", "  ", "+", ".", "_", "- ", "-.", ",")),)),
    Stratum("a decimal point or comma", lambda rng: _spoilt(rng, rng.choice(".,"))),
    Stratum(
        "an exponent", lambda rng: (_numeral(rng, rng.randint(1, 3)) + rng.choice("eE") + rng.choice("123456789"),)
    ),
    Stratum("another base", lambda rng: (rng.choice(("", "-")) + rng.choice(("0x1f", "0b101", "0o17", "0xa", "1f")),)),
    Stratum("raised digits", lambda rng: (rng.choice(("", "-")) + rng.choice(("²", "1²", "³4", "1²3")),)),
    Stratum("a fraction or other mark inside", lambda rng: _spoilt(rng, rng.choice("½Ⅷ/'%#;:"))),
)


def _separated(rng: Random, separator: str, alphabet: str, count: int) -> tuple[Any, ...]:
    """So many pieces of text that do not hold the separator, some of them empty, and the separator."""
    pieces = [text(rng, rng.choice((0, 1, 3)), alphabet).replace(separator, "") for _ in range(count)]
    return separator.join(pieces), separator


def _of_any(rng: Random, alphabet: str) -> str:
    return rng.choice(alphabet)


_FIELDS = (
    Stratum("empty", lambda rng: ("", _of_any(rng, ",; x"))),
    Stratum("one character", lambda rng: (rng.choice(("a", p := _of_any(rng, ",; x|"))), p), 2),
    Stratum("no separator", lambda rng: (text(rng, rng.randint(2, 30), LETTERS), _of_any(rng, ",; |"))),
    Stratum("another separator", lambda rng: ("a,b;c|d e\tf-g.h", _of_any(rng, ":/+*_"))),
    Stratum("commas", lambda rng: _separated(rng, ",", LETTERS, rng.randint(2, 9)), 2),
    Stratum("semicolons", lambda rng: _separated(rng, ";", LETTERS + ",", rng.randint(2, 9))),
    Stratum("bars", lambda rng: _separated(rng, "|", LETTERS + ",;", rng.randint(2, 9))),
    Stratum("blanks", lambda rng: _separated(rng, " ", LETTERS, rng.randint(4, 12)), 2),
    Stratum("blanks at the ends", lambda rng: (" " * rng.randint(1, 3) + text(rng, 5, "ab ") + " ", " ")),
    Stratum("tabs", lambda rng: _separated(rng, "\t", LETTERS + " ", rng.randint(4, 12))),
    Stratum("marks", lambda rng: _separated(rng, _of_any(rng, MARKS), LETTERS + MARKS, rng.randint(2, 9)), 2),
    Stratum(
        "marks that are patterns to others", lambda rng: _separated(rng, _of_any(rng, ".*+?^$()[]{}\\"), LETTERS, 6), 2
    ),
    Stratum("a letter", lambda rng: _separated(rng, _of_any(rng, "abxyz"), LETTERS, rng.randint(2, 9)), 2),
    Stratum("a capital", lambda rng: _separated(rng, _of_any(rng, "ABXYZ"), LETTERS, rng.randint(3, 9)), 2),
    Stratum("a digit", lambda rng: _separated(rng, _of_any(rng, "0123456789"), "0123456789", rng.randint(2, 9))),
    Stratum("of other scripts", lambda rng: _separated(rng, _of_any(rng, OTHERS), OTHERS, rng.randint(2, 9))),
    Stratum("beyond 16 bits", lambda rng: _separated(rng, _of_any(rng, "😀🐍𝔘𐍈"), ASTRAL, rng.randint(2, 9))),
    Stratum("of the other case", lambda rng: ("aAbBaAxXa", rng.choice("aAbBxX"))),
    Stratum("at the start", lambda rng: ((p := _of_any(rng, ",; x")) + text(rng, 4, "ab" + p), p)),
    Stratum("at the end", lambda rng: (text(rng, 4, "ab" + (p := _of_any(rng, ",; x"))) + p, p)),
    Stratum("one behind the other", lambda rng: ("a" + (p := _of_any(rng, ",; x|")) * rng.randint(2, 9) + "b", p)),
    Stratum("only separators", lambda rng: ((p := _of_any(rng, ",; x|")) * rng.randint(1, 40), p)),
    Stratum("blanks around the pieces", lambda rng: (" a ,b , c" + " " * rng.randint(0, 3), ",")),
    Stratum("quotes", lambda rng: ('"a,b",\'c,d\',"e""f"', rng.choice((",", '"', "'")))),
    Stratum("tens", lambda rng: _separated(rng, _of_any(rng, ",;|:"), LETTERS, rng.randint(12, 40))),
    Stratum("a hundred", lambda rng: _separated(rng, _of_any(rng, ",;|:"), LETTERS, rng.randint(104, 120))),
    Stratum("long pieces", lambda rng: (text(rng, 120, LETTERS) + "," + text(rng, 150, LETTERS), ",")),
)


def _terms(rng: Random, count: int, signs: str = "+-", digits: str = "0123456789") -> tuple[Any, ...]:
    """So many digits with a sign between each two."""
    return (rng.choice(digits) + "".join(rng.choice(signs) + rng.choice(digits) for _ in range(count - 1)),)


_SUMS = (
    Stratum("one digit", lambda rng: _terms(rng, 1), 2),
    Stratum("two digits", lambda rng: _terms(rng, 2), 2),
    Stratum("three or four", lambda rng: _terms(rng, rng.randint(3, 4)), 2),
    Stratum("five to nine", lambda rng: _terms(rng, rng.randint(5, 9)), 3),
    Stratum("tens", lambda rng: _terms(rng, rng.randint(12, 48)), 2),
    Stratum("a hundred", lambda rng: _terms(rng, rng.randint(104, 130))),
    Stratum("hundreds", lambda rng: _terms(rng, rng.randint(140, MOST // 2))),
    Stratum("all plus", lambda rng: _terms(rng, rng.randint(5, 20), "+", "123456789")),
    Stratum("all minus", lambda rng: _terms(rng, rng.randint(5, 20), "-", "123456789")),
    Stratum("far below zero", lambda rng: _terms(rng, rng.randint(60, 120), "-", "789")),
    Stratum("far above zero", lambda rng: _terms(rng, rng.randint(60, 120), "+", "789")),
    Stratum("nines", lambda rng: _terms(rng, rng.randint(3, 9), "+-", "9")),
    Stratum("zeros", lambda rng: _terms(rng, rng.randint(3, 9), "+-", "0")),
    Stratum(
        "only the last counts",
        lambda rng: ("0" + "+0" * rng.randint(5, 120) + rng.choice("+-") + rng.choice("123456789"),),
    ),
    Stratum("only the first counts", lambda rng: (rng.choice("123456789") + "-0" * rng.randint(5, 120),)),
    Stratum("minus, then plus", lambda rng: ("1-2-3" + "+4" * rng.randint(1, 9),)),
)

PROBLEMS = (
    define(
        "parsing",
        """
def balanced(s):
    n = 0
    for c in s:
        n += 1 if c == '(' else -1
        if n < 0:
            return False
    return n == 0
""",
        _brackets,
        domain=Domain(
            f"s: up to {MOST} characters, each ( or ). The answer is whether every bracket that opens is closed behind "
            "it, and none closes that was not opened; True for the empty text.",
            _BALANCED,
        ),
    ),
    define(
        "parsing",
        """
def read_int(s):
    n = 0
    for c in s.lstrip('-'):
        if not c.isdigit():
            raise ValueError(s)
        n = n * 10 + int(c)
    return -n if s[0] == '-' else n
""",
        _number_text,
        domain=Domain(
            "s: a text of 1 to 301 characters, which is a decimal integer: digits 0 to 9, with one minus or none in "
            "front. The answer is its value as an int. Any other text raises ValueError; the ones asked are no longer "
            "than 20 characters, have more in them than minus signs, begin with no more than one of those and hold no "
            "decimal digits of other scripts and no line breaks.",
            _NUMERALS,
        ),
        raises=("ValueError",),
    ),
    define(
        "parsing",
        """
def fields(s, p):
    out = ['']
    for c in s:
        if c == p:
            out.append('')
        else:
            out[-1] += c
    return out
""",
        _fields,
        domain=Domain(
            f"s: {TEXT}, and tabs; p: one such character. The answer is the list of the pieces of s between the p in "
            "it, in order and without p; the empty text is a piece too, so that there is always one more than there "
            "are p.",
            _FIELDS,
        ),
    ),
    define(
        "parsing",
        """
def read_sum(s):
    t = int(s[0])
    for i in range(1, len(s), 2):
        x = int(s[i + 1])
        t += x if s[i] == '+' else -x
    return t
""",
        _sum_text,
        domain=Domain(
            f"s: 1 to {MOST // 2} single digits with one + or - between each two, and nothing else. The answer is what "
            "that adds up to, as an int.",
            _SUMS,
        ),
    ),
)
