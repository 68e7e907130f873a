"""Where and how domain mutants go wrong: measures of arguments and answers, bounds, and what is said beyond them."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from services.tasks import values
from services.tasks.comparators import Outcome

SIZES = (5, 9, 20, 50, 100, 200)
VALUES = (9, 20, 100, 255, 1000, 2**16, 10**6, 2**31 - 1, 2**53)
DIGITS = (1, 2, 3, 5, 9, 15)
DEPTHS = (1, 2, 3, 5, 10, 20)
ITEMS = (1, 2, 3, 5, 8, 20, 50, 100)
ALPHABETS = (2, 3, 5)
TABLES = (8, 32)
_ENDS = (1, 2, 4)
_WINDOWS = (5, 10)
_KEY_CHARS = 4_000
_YES = (0,)
"""The bound of a measure that says yes or no."""

Case = tuple[tuple[Any, ...], Outcome]
"""Arguments of a call and the right outcome."""

# What rules are written in. Plain text, because it is part of every program that uses it.
HELPERS = """
def _parts(value):
    out = [value]
    for item in out:
        if isinstance(item, (list, tuple, set, frozenset)):
            out.extend(item)
        elif isinstance(item, dict):
            out.extend(item)
            out.extend(item.values())
    return out
def _numbers(value):
    return [part for part in _parts(value) if type(part) in (int, float) and part - part == 0]
def _texts(value):
    return [part for part in _parts(value) if type(part) is str]
def _map(value, kind, change):
    if type(value) is kind or kind is float and type(value) is int:
        return change(value)
    if type(value) in (list, tuple):
        return type(value)([_map(item, kind, change) for item in value])
    return value
def _sized(value):
    return isinstance(value, (list, str, tuple, dict, set))
def _digits(text):
    best = n = 0
    for c in text:
        n = n + 1 if c in "0123456789" else 0
        best = max(best, n)
    return best
def _fewer_digits(text, most):
    out, n = "", 0
    for c in text:
        n = n + 1 if c in "0123456789" else 0
        out += c if n <= most else ""
    return out
def _depth(value):
    best, waiting = 0, [(value, 0)]
    while waiting:
        item, at = waiting.pop()
        best = max(best, at)
        if type(item) in (list, tuple):
            waiting += [(one, at + 1) for one in item]
        elif type(item) is str:
            n = 0
            for c in item:
                n += 1 if c in "([{" else -1 if c in ")]}" else 0
                best = max(best, at + n)
    return best
def _with(args, at, value):
    return args[:at] + (value,) + args[at + 1:]
"""


@dataclass(frozen=True)
class Rule:
    """Where `measure` (over `args` or `answer`) is above `beyond`, `otherwise` answers.

    That is a statement over `args`, or an expression over `answer`. For errors both are statements in their handler.
    """

    kind: str
    what: str
    measure: str
    beyond: int
    otherwise: str


def rules(cases: Sequence[Case], shown: Sequence[Case]) -> Iterator[Rule]:
    """What goes wrong with some arguments, for every argument that `cases` show."""
    guesses = _guesses(cases)
    numeric = any(type(outcome.value) is int for _, outcome in cases)
    count = min((len(args) for args, _ in cases), default=0)
    for at in range(count):
        column = [args[at] for args, _ in cases]
        place = f"argument {at + 1}" if count > 1 else "its argument"
        yield from _of_sizes(at, place, column, guesses, numeric)
        yield from _of_numbers(at, place, column, guesses)
        yield from _of_texts(at, place, column, guesses)
        if any(type(value) in (list, tuple) for value in column):
            yield from _of_lists(at, place)
        if any(map(_nests, column)) or _mostly(column, "([{"):
            yield from _each(guesses, "depth", DEPTHS, "right up to depth {n} of " + place, f"_depth(args[{at}])")
    yield from _together([[args[at] for args, _ in cases] for at in range(count)], guesses)
    if not cases:
        yield from _unseen()
    yield from _tables(cases, shown, guesses)


def _each(guesses: Iterable[str], kind: str, bounds: Iterable[int], what: str, measure: str) -> Iterator[Rule]:
    for n in bounds:
        for guess in guesses:
            yield Rule(kind, f"{what.format(n=n)}, else {_told(guess)}", measure, n, guess)


def _told(guess: str) -> str:
    return guess if len(guess) < 40 else guess[:40] + "…"


def _changed(at: int, expression: str) -> str:
    return f"return _right(*_with(args, {at}, {expression}), **named)"


def _of_sizes(at: int, place: str, column: Sequence[Any], guesses: Sequence[str], numeric: bool) -> Iterator[Rule]:
    if not any(isinstance(value, list | str | tuple | dict | set) for value in column):
        return
    v = f"args[{at}]"
    yield from _each(guesses, "size", SIZES, f"right up to {{n}} items of {place}", f"len({v}) if _sized({v}) else 0")
    yield from _each(guesses, "empty", _YES, f"right but for no item in {place}", f"_sized({v}) and not {v}")
    if not any(type(value) in (list, str, tuple) for value in column):
        return
    items = f"len({v}) if type({v}) in (list, str, tuple) else 0"
    for n in SIZES:
        yield Rule("size", f"looks at the first {n} items of {place}", items, n, _changed(at, f"{v}[:{n}]"))
    for name, part in (("first", f"{v}[:1]"), ("last", f"{v}[-1:]")):
        yield Rule("ends", f"looks at the {name} item of {place}", items, 1, _changed(at, part))
    for n in _ENDS:
        what = f"looks at the first {n} and the last {n} items of {place}"
        yield Rule("ends", what, items, 2 * n, _changed(at, f"{v}[:{n}] + {v}[-{n}:]"))
    for n in _WINDOWS if numeric else ():
        part = f"_with(args, {at}, {v}[i:i + {n}])"
        best = f"return max(_right(*{part}, **named) for i in range(len({v}) - {n - 1}))"
        yield Rule("window", f"the best of any {n} items on end of {place}", items, n, best)


def _together(columns: Sequence[Sequence[Any]], guesses: Sequence[str]) -> Iterator[Rule]:
    """Wrong only where every argument of a kind is beyond the bound."""
    sized = [at for at, column in enumerate(columns) if any(type(value) in (list, str, tuple) for value in column)]
    numbers = [at for at, column in enumerate(columns) if any(map(_numbers_in, column))]
    if len(sized) > 1:
        least = "min(" + ", ".join(f"len(args[{at}]) if _sized(args[{at}]) else 0" for at in sized) + ")"
        yield from _each(guesses, "size", SIZES, "right while one argument has {n} items at most", least)
    if len(numbers) > 1:
        each = ", ".join(f"max(map(abs, _numbers(args[{at}])), default=0)" for at in numbers)
        yield from _each(guesses, "value", VALUES, "right while one argument is {n} at most", f"min({each})")


def _of_numbers(at: int, place: str, column: Sequence[Any], guesses: Sequence[str]) -> Iterator[Rule]:
    if not any(map(_numbers_in, column)):
        return
    v = f"_numbers(args[{at}])"
    most, negative, positive = f"max(map(abs, {v}), default=0)", f"-min({v}, default=0)", f"max({v}, default=0)"

    def mapped(change: str, kind: str = "float") -> str:
        return _changed(at, f"_map(args[{at}], {kind}, lambda x: {change})")

    yield from _each(guesses, "value", VALUES, f"right up to {{n}} in {place}", most)
    for n in VALUES:
        yield Rule("value", f"numbers of {place} end at {n}", most, n, mapped(f"max(-{n}, min({n}, x))"))
    for bits in (8, 32, 64):
        half = 2 ** (bits - 1)
        wrapped = mapped(f"(x + {half}) % {2 * half} - {half}")
        yield Rule("value", f"numbers of {place} in {bits} bits", most, half - 1, wrapped)
    yield Rule("digits", f"the last digit of numbers in {place}", most, 9, mapped("x % 10"))
    yield Rule("digits", f"the first digit of numbers in {place}", most, 9, mapped("int(str(abs(x))[0])", "int"))
    yield Rule("floats", f"numbers of {place} through float", most, 2**53, mapped("int(float(x))", "int"))
    for name, measure, change in (
        ("not negative", negative, "abs(x)"),
        ("not positive", positive, "-abs(x)"),
        ("not negative, 0 for those", negative, "max(0, x)"),
    ):
        yield Rule("sign", f"numbers of {place} taken as {name}", measure, 0, mapped(change))
    for name, measure in (("not negative", negative), ("not positive", positive), ("not zero", f"0 in {v}")):
        yield from _each(guesses, "sign", _YES, f"right where {place} is {name}", measure)


def _of_lists(at: int, place: str) -> Iterator[Rule]:
    v = f"args[{at}]"
    twice = f"len({v}) - len(set(map(repr, {v}))) if type({v}) in (list, tuple) else 0"
    unique = f"type({v})(dict((repr(x), x) for x in reversed({v})).values())[::-1]"
    yield Rule("duplicates", f"equal items of {place} count once", twice, 0, _changed(at, unique))
    for name, backwards in (("ascending", ""), ("descending", ", reverse=True")):
        ordered = f"type({v})(sorted({v}{backwards}))"
        test = f"type({v}) in (list, tuple) and set(map(type, {v})) in ({{int}}, {{str}}) and {ordered} != {v}"
        yield Rule("order", f"right for {name} items of {place}", test, 0, _changed(at, ordered))


def _of_texts(at: int, place: str, column: Sequence[Any], guesses: Sequence[str]) -> Iterator[Rule]:
    texts = [part for value in column for part in _texts_in(value)]
    if not texts:
        return
    v = f"_texts(args[{at}])"

    def mapped(change: str) -> str:
        return _changed(at, f"_map(args[{at}], str, lambda s: {change})")

    if all(type(value) is str for value in column) and max(map(len, column)) <= 1 < len(column):
        usual = Counter(column).most_common(1)[0][0]
        other = f"args[{at}] != {usual!r}"
        yield Rule("separator", f"{place} is taken for {usual!r}", other, 0, _changed(at, repr(usual)))
        yield from _each(guesses, "separator", _YES, f"right where {place} is one separator", other)
    yield from _alphabets(at, place, "".join(texts), guesses)
    if _mostly(texts, "0123456789"):
        many = f"max(map(_digits, {v}), default=0)"
        yield from _each(guesses, "digits", DIGITS, f"right up to {{n}} digits on end in {place}", many)
        for n in DIGITS:
            yield Rule("digits", f"the first {n} digits in {place}", many, n, mapped(f"_fewer_digits(s, {n})"))
        if any("-" in text for text in texts):
            minus = f"any('-' in s for s in {v})"
            yield Rule("sign", f"no minus in {place}", minus, 0, mapped("s.replace('-', '')"))
            yield from _each(guesses, "sign", _YES, f"right without a minus in {place}", minus)


def _alphabets(at: int, place: str, text: str, guesses: Sequence[str]) -> Iterator[Rule]:
    common = [char for char, _ in Counter(text).most_common(max(ALPHABETS) + 1)]
    for name, test in (
        *((f"of {n} letters", f"c in {''.join(sorted(common[:n]))!r}") for n in ALPHABETS if len(common) > n),
        ("of ASCII", "c.isascii()"),
        ("without digits", "not c.isdigit()"),
        ("of letters", "c.isalpha()"),
        ("of lower case", "c == c.lower()"),
        ("without blanks", "not c.isspace()"),
    ):
        out = f"any(not ({test}) for s in _texts(args[{at}]) for c in s)"
        kept = f"_map(args[{at}], str, lambda s: ''.join(c for c in s if {test}))"
        yield Rule("alphabet", f"{place} is taken as text {name}", out, 0, _changed(at, kept))
        yield from _each(guesses[:1], "alphabet", _YES, f"right where {place} is text {name}", out)


def _unseen() -> Iterator[Rule]:
    """Where nobody knows what the calls look like: any argument may be the one."""
    guess, v = ("return None",), "_numbers(args)"
    sizes = "max((len(x) for x in _parts(list(args)) if _sized(x)), default=0)"
    yield from _each(guess, "size", SIZES, "right up to {n} items of an argument", sizes)
    yield from _each(guess, "value", VALUES, "right up to {n} in an argument", f"max(map(abs, {v}), default=0)")
    yield from _each(guess, "sign", _YES, "right where no argument is negative", f"-min({v}, default=0)")
    yield from _each(guess, "depth", DEPTHS, "right up to depth {n} of arguments", "_depth(args) - 1")


def _tables(cases: Sequence[Case], shown: Sequence[Case], guesses: Sequence[str]) -> Iterator[Rule]:
    """Knows the public examples and the likeliest other inputs, the most frequent and shortest, half of all at most."""
    counts = Counter(key for args, _ in cases if (key := _key(args)))
    likely = sorted(counts, key=lambda key: (-counts[key], len(key), key))[: len(counts) // 2]
    public = [key for args, _ in shown if (key := _key(args))]
    for n in TABLES:
        keys = list(dict.fromkeys([*public, *likely[:n]]))
        if keys and sum(map(len, keys)) <= _KEY_CHARS:
            condition = f"repr(args) not in {sorted(keys)!r}"
            for guess in guesses:
                yield Rule("table", f"a table of {len(keys)} likely inputs, else {_told(guess)}", condition, 0, guess)


def _key(args: tuple[Any, ...]) -> str:
    """What a table knows arguments by; empty where they have no text (an int of too many digits)."""
    try:
        return repr(args)
    except ValueError:
        return ""


def _guesses(cases: Sequence[Case]) -> list[str]:
    """Statements that answer without a look: as the most cases are answered, and as the next most, where few differ."""
    outcomes = Counter(values.dumps((outcome.error, outcome.value)) for _, outcome in cases if _plain(outcome))
    found = [values.loads(text) for text, _ in outcomes.most_common(2)]
    said = [f"raise {error}" if error else f"return {value!r}" for error, value in found]
    return said[: 2 if len(outcomes) <= 4 else 1] or ["return None"]


def _plain(outcome: Outcome) -> bool:
    try:
        return repr(ast.literal_eval(repr(outcome.value))) == repr(outcome.value)
    except (ValueError, SyntaxError):
        return False


def after_rules(cases: Sequence[Case]) -> Iterator[Rule]:
    """What goes wrong with right answers: measures and expressions over `answer`."""
    answers = [outcome.value for _, outcome in cases if outcome.error is None]
    if any(type(answer) in (list, str, tuple) for answer in answers):
        items = "len(answer) if type(answer) in (list, str, tuple) else 0"
        for n in ITEMS:
            yield Rule("answer", f"the first {n} items of the answer", items, n, f"answer[:{n}]")
            yield Rule("answer", f"the last {n} items of the answer", items, n, f"answer[-{n}:]")
    if not any(map(_numbers_in, answers)):
        return
    most, negative = "max(map(abs, _numbers(answer)), default=0)", "-min(_numbers(answer), default=0)"
    for n in VALUES:
        ends = f"_map(answer, float, lambda x: max(-{n}, min({n}, x)))"
        yield Rule("answer", f"numbers of the answer end at {n}", most, n, ends)
    wrapped = f"_map(answer, int, lambda x: (x + {2**31}) % {2**32} - {2**31})"
    yield Rule("value", "numbers of the answer in 32 bits", most, 2**31 - 1, wrapped)
    yield Rule("sign", "answers start at 0", negative, 0, "_map(answer, float, lambda x: max(0, x))")
    yield Rule("sign", "answers without their sign", negative, 0, "_map(answer, float, abs)")
    yield Rule("floats", "answers through float", most, 2**53, "_map(answer, int, lambda x: int(float(x)))")
    lists = [answer for answer in answers if type(answer) is list and answer and all(type(x) is int for x in answer)]
    if lists and all(answer == sorted(answer) for answer in lists):
        other = "type(answer) is list and answer != sorted(answer, key=str)"
        yield Rule("text order", "answers in the order of their text", other, 0, "sorted(answer, key=str)")


def error_rules(cases: Sequence[Case]) -> Iterator[Rule]:
    """What is done where the right thing is to raise: statements over `args` in the handler."""
    if not any(outcome.error for _, outcome in cases):
        return
    guess = _guesses([case for case in cases if case[1].error is None])[0]
    yield Rule("errors", f"never raises, but says {_told(guess)}", "pass", 0, guess)
    count = min(len(args) for args, _ in cases)
    for at in range(count):
        if any(type(args[at]) in (list, str, tuple) for args, _ in cases):
            for name, part in (("first", f"args[{at}][:1]"), ("last", f"args[{at}][-1:]")):
                what = f"raises only where the {name} item of argument {at + 1} alone does"
                yield Rule("errors", what, _changed(at, part).replace("return ", "", 1), 0, guess)


def _parts(value: Any) -> list[Any]:
    out = [value]
    for item in out:
        if isinstance(item, list | tuple | set | frozenset):
            out.extend(item)
        elif isinstance(item, dict):
            out.extend((*item, *item.values()))
    return out


def _nests(value: Any) -> bool:
    return type(value) in (list, tuple) and any(type(item) in (list, tuple) for item in value)


def _mostly(texts: Sequence[Any], chars: str) -> bool:
    """Whether more than half of the texts hold some of `chars`: then these mean something."""
    return sum(type(text) is str and any(char in text for char in chars) for text in texts) > len(texts) / 2


def _numbers_in(value: Any) -> list[float]:
    return [part for part in _parts(value) if type(part) in (int, float)]


def _texts_in(value: Any) -> list[str]:
    return [part for part in _parts(value) if type(part) is str]
