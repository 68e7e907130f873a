"""What the editing tools do to a text, and that the diff of any edits is one that the verifier admits."""

import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.patch.admission import Refused, admit
from services.patch.render import render
from services.sandbox import edits
from services.sandbox.edits import Refusal

SOURCE = "def f(x):\n    if x:\n        return 1\n    return 2\n"


@pytest.mark.parametrize(("line", "text", "expected"), [
    (3, "return 5", "def f(x):\n    if x:\n        return 5\n    return 2\n"),
    (3, "    return 5", "def f(x):\n    if x:\n    return 5\n    return 2\n"),
    (4, "y = 3\nreturn y", "def f(x):\n    if x:\n        return 1\n    y = 3\n    return y\n"),
    (4, "", "def f(x):\n    if x:\n        return 1\n"),
    (1, "def f(x, y=0):", "def f(x, y=0):\n    if x:\n        return 1\n    return 2\n"),
])  # fmt: skip
def test_edit_copies_indentation_only_when_the_text_has_none(line: int, text: str, expected: str) -> None:
    assert edits.edit_line(SOURCE, line, text) == expected


@pytest.mark.parametrize("line", [0, -1, 5, 10**9])
def test_edit_outside_the_source_is_refused_with_the_range(line: int) -> None:
    with pytest.raises(Refusal, match=r"out of range 1\.\.4"):
        edits.edit_line(SOURCE, line, "x")


def test_replace_wants_exactly_one_occurrence() -> None:
    assert edits.replace_text(SOURCE, "return 2", "return 3").endswith("return 3\n")
    with pytest.raises(Refusal, match="is not in the source"):
        edits.replace_text(SOURCE, "return 9", "")
    with pytest.raises(Refusal, match="occurs 2 times"):
        edits.replace_text(SOURCE, "return", "yield")
    with pytest.raises(Refusal, match="occurs 2 times"):
        edits.replace_text("aaa", "aa", "b")
    with pytest.raises(Refusal, match="empty"):
        edits.replace_text(SOURCE, "", "b")


@pytest.mark.parametrize(("raw", "message"), [
    ("{", "not JSON"), ("[1]", "not an object"),
    ('{"line": "3"}', "is no number"), ('{"line": true}', "is no number"),
    ('{"text": 3}', "is no text"), ('{"lines": 3}', "no argument 'lines'"),
    ('{"text": "\\u0000"}', "control character"),
    ('{"text": "\\ud800"}', "not UTF-8"), ("[" * 100_000, "not JSON"),
    (json.dumps({"text": "x" * 9000}), "longer than"),
    ('{"text": "a\\r"}', "control character"),
])  # fmt: skip
def test_bad_arguments_are_refused_with_a_specific_message(raw: str, message: str) -> None:
    with pytest.raises(Refusal, match=message):
        edits.arguments(raw, {"line": int, "text": str})


def test_growth_is_bounded() -> None:
    with pytest.raises(Refusal, match="source longer"):
        edits.replace_text("x" * 60_000, "x" * 60_000, "y" * 70_000)


TEXT = st.text(st.sampled_from("ab \t\n"), max_size=30)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(st.tuples(st.integers(1, 8), TEXT), st.tuples(TEXT, TEXT)), max_size=5))
def test_the_diff_of_any_edits_is_admitted_and_gives_the_edited_tree(operations) -> None:
    base = {"solution.py": SOURCE}
    text = SOURCE
    for first, second in operations:
        try:
            text = (
                edits.edit_line(text, first, second)
                if isinstance(first, int)
                else edits.replace_text(text, first, second)
            )
        except Refusal:
            continue
    diff = render(base, {"solution.py": text})
    if text.split() == SOURCE.split():  # perhaps nothing but white space differs, which is no change
        with contextlib.suppress(Refused):
            assert admit(diff, base, ("solution.py",)).tree == {"solution.py": text}
        return
    assert admit(diff, base, ("solution.py",)).tree == {"solution.py": text}


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from("abcdefgh"), max_size=40), st.lists(st.sampled_from("abcdefghxy"), max_size=40))
def test_the_diff_of_any_two_texts_gives_the_second(old: list[str], new: list[str]) -> None:
    base = {"s.py": "".join(f"{line} = 1\n" for line in old), "t.py": "t = 1\n"}
    tree = {"s.py": "".join(f"{line} = 1\n" for line in new), "t.py": "t = 2\n"}
    assert admit(render(base, tree), base, ("*.py",)).tree == tree


def test_changes_far_apart_in_a_long_file_are_hunks_of_their_own() -> None:
    lines = [f"x{number} = {number}\n" if number % 3 else "\n" for number in range(3_000)]
    changed = ["y = 0\n", *lines[1:1_500], "z = 1\n", *lines[1_500:-1], "y = 9\n"]
    base, tree = {"s.py": "".join(lines)}, {"s.py": "".join(changed)}
    diff = render(base, tree)
    assert diff.count("@@ -") == 3
    assert len(diff.split("\n")) < 30
    assert admit(diff, base, ("*.py",)).tree == tree
