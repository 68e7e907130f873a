"""Protects: any text of the policy is either exactly one action or a specific complaint, and never an exception."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.agent.grammar import Edit, Malformed, Read, Replace, Submit, Test, parse, render

text_line = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=40)
arrows = st.lists(st.sampled_from(["=>", " => ", "\\", "\\=>", "a", " ", "=", ">"]), max_size=8).map("".join)


@given(
    st.one_of(
        st.text(max_size=80),
        st.sampled_from(["edit ", "replace ", "test", "edit 1: "]).flatmap(
            lambda head: st.text(max_size=30).map(lambda tail: head + tail)
        ),
    )
)
def test_parse_never_raises_and_what_it_accepts_renders_back(text: str) -> None:
    action = parse(text)
    if isinstance(action, Malformed):
        assert action.message
    else:
        assert render(action) == text


@given(st.integers(1, 99_999), text_line)
def test_every_edit_can_be_stated(line: int, text: str) -> None:
    assert parse(render(Edit(line, text))) == Edit(line, text)


@given(st.one_of(text_line, arrows).filter(bool), st.one_of(text_line, arrows))
def test_every_replacement_can_be_stated(old: str, new: str) -> None:
    assert parse(render(Replace(old, new))) == Replace(old, new)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "empty action"),
        ("fix it", "no tool 'fix'; tools: edit replace test read submit"),
        ("edit 0: x", "write edit N: text"),
        ("edit 3 x", "write edit N: text"),
        ("edit 03: x", "write edit N: text"),
        ("edit 3: ", "write edit N: text"),
        ("replace a with b", "write replace old => new"),
        ("replace  => b", "replace: old text is empty"),
        ("replace x=>y => b", "replace: write an arrow inside old text as \\=>"),
        ("submit now", "submit takes nothing"),
        ("edit 3: \x07", "control character in action"),
        ("edit 1: " + "x" * 5000, "longer than 4000 characters"),
    ],
)
def test_the_complaint_says_what_is_wrong(text: str, message: str) -> None:
    assert parse(text) == Malformed(message)


def test_the_plain_tools() -> None:
    assert [parse(t) for t in ("test", "read", "submit", "edit 2:")] == [Test(), Read(), Submit(), Edit(2, "")]
    assert parse("edit 12: if x:\n    return y") == Edit(12, "if x:\n    return y")
