"""Must-fail copies: every copy fails for an honest module, and no copy gives away which is real."""

import ast
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.verifier.hidden.must_fail import COPIES, NoCanary, other, variants

LITERALS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
    | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.lists(inner, max_size=4).map(tuple)
    | st.dictionaries(st.integers() | st.text(), inner, max_size=4) | st.sets(st.integers() | st.text(), max_size=4),
    max_leaves=8,
)  # fmt: skip


@given(LITERALS, st.integers())
def test_another_literal_never_equals_the_first(value: object, seed: int) -> None:
    found = other(value, random.Random(seed))
    assert found != value
    assert ast.literal_eval(repr(found)) == found


@settings(max_examples=40)
@given(st.lists(LITERALS, min_size=1, max_size=4), st.integers())
def test_every_copy_fails_where_the_real_one_passes(expected: list[object], seed: int) -> None:
    source = "def test_a():\n" + "".join(f"    assert f({i}) == {value!r}\n" for i, value in enumerate(expected))
    found = variants({"t.py": source}, random.Random(seed))
    outcomes = []
    for version in found.versions:
        space = {"f": lambda number: expected[number]}
        exec(version["t.py"], space)
        try:
            space["test_a"]()  # type: ignore[operator]  # it was just defined
            outcomes.append(True)
        except AssertionError:
            outcomes.append(False)
    assert outcomes == [number == found.real["t.py::test_a"] for number in range(1 + COPIES)]


def test_copies_change_the_same_place_and_only_it() -> None:
    source = "def test_a():\n" + "".join(f"    assert f({i}) == {i * 1000}\n" for i in range(6))
    found = variants({"t.py": source, "data.txt": "as it is\n"}, random.Random(4))
    lines = list(zip(*(version["t.py"].splitlines() for version in found.versions), strict=True))
    assert sum(len(set(line)) == 3 for line in lines) == 1
    assert sum(len(set(line)) == 1 for line in lines) == len(lines) - 1
    assert {version["data.txt"] for version in found.versions} == {"as it is\n"}


@pytest.mark.parametrize("body", [
    "assert f()", "assert f() == g()", "assert 1 == 1", "assert f() != 3", "assert f() == ...", "assert f() == 1j",
    "if f():\n        assert f() == 3", "if f():\n        return\n    assert f() == 3", "assert f() is 3",
])  # fmt: skip
@pytest.mark.filterwarnings("ignore::SyntaxWarning")
def test_what_might_not_run_or_has_no_other_is_not_changed(body: str) -> None:
    with pytest.raises(NoCanary):
        variants({"t.py": f"def test_a():\n    {body}\n"}, random.Random(0))


def test_methods_and_literals_on_the_left_qualify() -> None:
    source = "class TestX:\n    def test_a(self):\n        assert True is f()\n    def help(self):\n        assert 3\n"
    assert list(variants({"t.py": source}, random.Random(0)).real) == ["t.py::TestX::test_a"]
