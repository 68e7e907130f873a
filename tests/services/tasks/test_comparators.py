"""Protects the comparisons: declared looseness only, and never across types that Python itself would call equal."""

import math

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


ALL = ["exact", "sequence", "number", "multiset", "set", "abs:0.5", "rel:0.5", "multiset+number", "rel:0.5+sequence"]


@given(st.booleans(), st.sampled_from(ALL))
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


@pytest.mark.parametrize("name", ["abs:1", "abs:0.5", "rel:1e-3", "rel:1e-9", "close:1e-3"])
def test_no_int_passes_through_a_float(name: str) -> None:
    for left, right in ((2**53, 2**53 + 1), (10**400, 10**400 + 1), (500_500, 500_540), (3, 4)):
        assert not agree(name, Outcome([left]), Outcome([right]))
        assert agree(name, Outcome([left]), Outcome([left]))
    assert not agree(name, Outcome(10**400), Outcome(math.inf))
    assert not agree(name, Outcome(-math.inf), Outcome(-(10**400)))


def test_a_tolerance_is_exact_where_an_int_meets_a_float() -> None:
    assert not agree("abs:0.5", Outcome(2.0**53), Outcome(2**53 + 1))  # as floats they are one
    assert agree("abs:1", Outcome(2.0**53), Outcome(2**53 + 1))
    assert not agree("rel:1e-17", Outcome(2.0**53), Outcome(2**53 + 1))
    assert agree("rel:1e-3", Outcome(1e300), Outcome(10**300))


def test_close_forgives_where_a_float_is_expected_and_nowhere_else() -> None:
    name = "close:1e-4+number+sequence"
    wanted = [1.5, (500_500, {"a": 0.0}), True, math.inf, math.nan, "x"]
    for fine in (
        wanted,
        [1.50001, (500_500, {"a": 1e-17}), True, math.inf, math.nan, "x"],
        (1.5, [500_500.0, {"a": -0.0}], True, math.inf, math.nan, "x"),
        [1.5, (500_500, {"a": 0}), True, math.inf, math.nan, "x"],
    ):
        assert agree(name, Outcome(wanted), Outcome(fine)), fine
    for place, wrong in ((0, 1.51), (0, True), (0, math.nan), (1, (500_540, {"a": 0.0})), (1, (500_540.0, {"a": 0.0})),
                         (1, (500_500.01, {"a": 0.0})), (1, (500_500, {"a": 1e-6})), (1, (500_500, {"b": 0.0})),
                         (2, 1), (2, 1.0), (3, 1e308), (3, -math.inf), (4, 0.0), (5, "y")):  # fmt: skip
        assert not agree(name, Outcome(wanted), Outcome([*wanted[:place], wrong, *wanted[place + 1 :]])), wrong
    assert not agree(name, Outcome(wanted), Outcome(wanted[:-1]))
    assert not agree("close:1e-4", Outcome([2]), Outcome([2.0]))
    assert comparators.drains(name)


def test_an_exception_counts_where_except_would_take_it() -> None:
    wanted = Outcome(error="ValueError")
    for names in (("UnicodeError",), ("ValueError",), ("KeyError", "ValueError")):
        assert agree("exact", wanted, Outcome.raised(names))
    for names in (("Exception",), ("KeyError",), ("LookupError", "OSError")):
        assert not agree("exact", wanted, Outcome.raised(names))
    assert agree("exact", Outcome(error="LookupError"), Outcome(error="IndexError"))
    assert not agree("exact", Outcome(error="IndexError"), Outcome(error="LookupError"))


def test_answers_to_one_question_may_differ_by_what_the_contract_leaves_open() -> None:
    for name, first, again in (
        ("multiset", [1, 2], [2, 1]), ("set", [1, 2], [2, 1, 1]), ("exact", {1: 2, 3: 4}, {3: 4, 1: 2}),
        ("sequence", [1], (1,)), ("number", 1, 1.0), ("predicate:any_of", 3, 4), ("abs:1", {1: 2, 3: 4}, {3: 4, 1: 2}),
    ):  # fmt: skip
        assert comparators.consistent(name, Outcome(first), Outcome(again)), name
    for name, first, again in (
        ("exact", [1, 2], [2, 1]), ("multiset", [1, 2], [1, 1]), ("abs:1", 1.0, 1.1), ("rel:0.5", 1.0, 1.1),
        ("close:0.5+number", 1.0, 1.1),
    ):  # fmt: skip
        assert not comparators.consistent(name, Outcome(first), Outcome(again)), name
    assert comparators.consistent("exact", Outcome(error="KeyError"), Outcome(error="LookupError"))
    assert not comparators.consistent("exact", Outcome(error="KeyError"), Outcome(1))


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


def test_numbers_are_one_only_where_declared_and_only_by_value() -> None:
    for name in ("number", "exact+number", "sequence+number", "multiset+number", "set+number"):
        assert agree(name, Outcome([2, 1.0]), Outcome([2.0, 1]))
        assert agree(name, Outcome([float("nan")]), Outcome([float("nan")]))
        assert agree(name, Outcome([-0.0]), Outcome([0]))
        for wrong in ([True, 2], ["1", 2], [1, 2.5], [1, 10**400], [2**53 + 1, 2.0**53]):
            assert not agree(name, Outcome([1, 2]), Outcome(wrong))
    assert agree("number", Outcome({1: {2.0}, "k": (3,)}), Outcome({1.0: {2}, "k": (3.0,)}))
    assert not agree("number", Outcome({1: 2}), Outcome({True: 2}))
    assert not agree("number", Outcome([2**53 + 1]), Outcome([float(2**53)]))
    assert not agree("number", Outcome(10**400), Outcome(float("inf")))
    assert not agree("number", Outcome([1]), Outcome((1.0,)))
    assert agree("number+sequence", Outcome([1]), Outcome((1.0,)))
    assert not agree("exact", Outcome([2]), Outcome([2.0]))


def test_looseness_composes() -> None:
    assert agree("rel:1e-3+sequence", Outcome([(1.0, 2)]), Outcome(([1.0001, 2.0],)))
    assert not agree("rel:1e-3", Outcome([(1.0, 2)]), Outcome([[1.0, 2]]))
    assert agree("abs:1e-3", Outcome({"a": [1.0]}), Outcome({"a": [1.0001]}))
    assert agree("multiset+sequence", Outcome([(1, 2), [3]]), Outcome(([3], [1, 2])))
    assert not agree("multiset", Outcome([(1, 2)]), Outcome([[1, 2]]))
    assert agree("number+args", Outcome(1, args_after=([1.0],)), Outcome(1.0, args_after=([1],)))
    assert not agree("exact+args", Outcome(1, args_after=([1.0],)), Outcome(1, args_after=([1],)))
    assert comparators.parse("abs:1e+3+args") == comparators.Comparator("abs", 1000.0, arguments=True)
    assert comparators.drains("rel:1e-3+sequence")


@given(st.sets(st.integers() | st.text(max_size=2) | st.tuples(st.integers(), st.text(max_size=1)), max_size=5))
def test_sets_of_mixed_types_are_equal_to_themselves_only(members: set[object]) -> None:
    assert agree("exact", Outcome(members), Outcome(set(members)))
    assert not agree("exact", Outcome(members), Outcome(frozenset(members)))
    assert not agree("exact", Outcome(members), Outcome(members | {b"other"}))
    assert agree("multiset", Outcome(members), Outcome(set(members)))


def test_a_predicate_judges_values_and_nothing_else() -> None:
    def even(value: object) -> bool:
        return value % 2 == 0  # type: ignore[operator]  # what a wrong type raises is a "no"

    assert agree("predicate:even", Outcome(2), Outcome(4), even)
    for wrong in (3, "x", None, [2], b"2"):
        assert not agree("predicate:even", Outcome(2), Outcome(wrong), even)
    assert not agree("predicate:even", Outcome(2), Outcome(4), lambda value: value)  # anything but True is a "no"
    assert not agree("predicate:even", Outcome(2), Outcome(error="ValueError"), even)
    assert not agree("predicate:even", Outcome(error="ValueError"), Outcome(2), even)
    assert agree("predicate:even", Outcome(error="ValueError"), Outcome(error="ValueError"), even)
    assert not agree("predicate:even+args", Outcome(2, args_after=(1,)), Outcome(4, args_after=(2,)), even)
    with pytest.raises(ValueError, match="needs its predicate"):
        agree("predicate:even", Outcome(2), Outcome(4))


@pytest.mark.parametrize(
    "name",
    [
        "number:1",
        "exact+",
        "exact+arg",
        "exact+args+args",
        "predicate",
        "predicate:",
        "predicate:a b",
        "abs:1+",
        "+args",
    ],
)
def test_malformed_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError):
        comparators.parse(name)


@pytest.mark.parametrize("name", ["", "exakt", "exact:1", "abs", "abs:0", "abs:-1", "rel:nan", "rel:inf", "set:2"])
def test_unknown_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError):
        comparators.parse(name)
