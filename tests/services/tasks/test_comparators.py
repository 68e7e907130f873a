"""Protects the comparisons: declared looseness only, and never across types that Python itself would call equal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.tasks import comparators
from services.tasks.comparators import Outcome, agree

UNEQUAL = [
    (True, 1), (False, 0), (2, 2.0), (0, False), (1, "1"), ([1], (1,)), ([1, 2], [2, 1]), ({1}, {True}), ({1}, [1]),
    ({1}, frozenset({1})), ({1: 2}, {True: 2}), ({1: 2}, {1: 2.0}), ({1: 2}, {1: 2, 3: 4}), (None, False), ("", None),
    (b"a", "a"), ([[1]], [[True]]), ((1, [2.0]), (1, [2])), ([], ()),
]  # fmt: skip


@pytest.mark.parametrize(("left", "right"), UNEQUAL)
def test_exact_tells_types_apart(left: object, right: object) -> None:
    assert not agree("exact", Outcome(left), Outcome(right))
    assert not agree("exact", Outcome(right), Outcome(left))


@pytest.mark.parametrize(
    "value", [1, -0.0, "a", None, [1, (2, {3})], {"a": {1: [2]}}, {1: 2, 3: 4}, float("nan"), b"x"]
)
def test_exact_agrees_with_itself(value: object) -> None:
    assert agree("exact", Outcome(value), Outcome(value))


def test_dict_order_is_free_but_key_types_are_not() -> None:
    assert agree("exact", Outcome({1: 2, 3: 4}), Outcome({3: 4, 1: 2}))
    assert not agree("exact", Outcome({1: 2}), Outcome({1.0: 2}))


@given(st.booleans(), st.sampled_from(["exact", "sequence", "multiset", "set", "abs:0.5", "rel:0.5"]))
def test_no_comparator_takes_a_bool_for_a_number(flag: bool, name: str) -> None:
    assert not agree(name, Outcome(int(flag)), Outcome(flag))
    assert not agree(name, Outcome([int(flag)]), Outcome([flag]))
    assert not agree(name, Outcome(float(flag)), Outcome(flag))


def test_sequence_joins_lists_and_tuples_at_every_depth_only() -> None:
    assert agree("sequence", Outcome([1, [2]]), Outcome((1, (2,))))
    assert agree("sequence", Outcome({"a": [1]}), Outcome({"a": (1,)}))
    assert not agree("sequence", Outcome([1]), Outcome([1.0]))
    assert not agree("sequence", Outcome([1]), Outcome({1}))
    assert comparators.drains("sequence")
    assert not comparators.drains("exact")


def test_multiset_and_set() -> None:
    assert agree("multiset", Outcome([1, 2, 2]), Outcome([2, 1, 2]))
    assert not agree("multiset", Outcome([1, 2, 2]), Outcome([1, 1, 2]))
    assert not agree("multiset", Outcome([1, 2]), Outcome((1, 2)))
    assert not agree("multiset", Outcome([1]), Outcome([1.0]))
    assert agree("set", Outcome([1, 2, 2]), Outcome([2, 1]))
    assert not agree("set", Outcome([1]), Outcome([1, 2]))
    assert not agree("set", Outcome("ab"), Outcome("ba"))


def test_tolerance_is_numeric_only() -> None:
    assert agree("abs:1e-3", Outcome(2), Outcome(2.0005))
    assert not agree("abs:1e-3", Outcome(2), Outcome(2.01))
    assert agree("rel:1e-3", Outcome([1000.0]), Outcome([1000.5]))
    assert not agree("rel:1e-3", Outcome(1.0), Outcome(float("nan")))
    assert agree("rel:1e-3", Outcome(float("inf")), Outcome(float("inf")))
    assert not agree("abs:1", Outcome(float("inf")), Outcome(1e308))
    assert not agree("abs:1", Outcome("a"), Outcome("b"))
    assert not agree("abs:1", Outcome([1.0]), Outcome([1.0, 1.0]))
    assert agree("abs:1", Outcome(10**400), Outcome(10**400))
    assert not agree("abs:1", Outcome(10**400), Outcome(10**400 + 1))


def test_exceptions_compare_by_type_name() -> None:
    assert agree("exact", Outcome(error="ValueError"), Outcome(error="ValueError"))
    assert not agree("exact", Outcome(error="ValueError"), Outcome(error="KeyError"))
    assert not agree("exact", Outcome(error="ValueError"), Outcome(None))
    assert not agree("exact", Outcome(None), Outcome(error="ValueError"))


def test_argument_mutation_counts_where_declared() -> None:
    kept, changed = Outcome([1], args_after=([1],)), Outcome([1], args_after=([2],))
    assert agree("exact", kept, changed)
    assert not agree("exact+args", kept, changed)
    assert agree("exact+args", kept, kept)
    assert not agree("exact+args", kept, Outcome([1]))  # nobody looked: not a pass


@pytest.mark.parametrize("name", ["", "exakt", "exact:1", "abs", "abs:0", "abs:-1", "rel:nan", "rel:inf", "set:2"])
def test_unknown_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError):
        comparators.parse(name)
