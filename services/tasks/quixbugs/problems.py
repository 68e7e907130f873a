"""The 31 programs that we know: each name's contract."""

from dataclasses import replace
from functools import lru_cache

from services.tasks.quixbugs import lists, numbers, texts
from services.tasks.quixbugs.domains import DOMAINS
from services.tasks.quixbugs.problem import Problem

# JSON cannot tell lists from tuples and generators, or 2 from 2.0, and the definitions do not: an answer counts by its
# value. What is exact: truth values, indices, texts, and items that only pass through.
_LIST = "sequence"
_NUMBERS = "sequence+number"

_PROBLEMS = (
    Problem(numbers.bitcount, numbers._bitcount, "number"),
    Problem(lists.bucketsort, lists._bucketsort, _NUMBERS),
    Problem(lists.find_first_in_sorted, lists._sorted_and_one),
    Problem(lists.find_in_sorted, lists._sorted_and_one, "predicate:an_index", predicates=(lists.an_index,)),
    Problem(lists.flatten, lists._flatten, _LIST),
    Problem(numbers.gcd, numbers._gcd, "number"),
    Problem(numbers.get_factors, numbers._get_factors, _NUMBERS, fits=lambda n: n < 10**9),
    # With start and end alike there is nothing to move, which the benchmark's program does not know.
    Problem(numbers.hanoi, numbers._hanoi, _NUMBERS, fits=lambda height, start, end: start != end and height <= 10),
    Problem(texts.is_valid_parenthesization, texts._parens),
    Problem(lists.kheapsort, lists._kheapsort, _NUMBERS),
    Problem(lists.knapsack, lists._knapsack, "number", fits=lambda capacity, items: capacity <= 1000),
    Problem(lists.kth, lists._kth, "number"),
    Problem(texts.lcs_length, texts._lcs_length, "number"),
    Problem(texts.levenshtein, texts._levenshtein, "number", fits=texts._short),
    Problem(lists.lis, lists._lis, "number"),
    Problem(
        texts.longest_common_subsequence,
        texts._subsequence_pair,
        "predicate:a_longest",
        fits=texts._few_letters,
        predicates=(texts.a_longest,),
    ),
    Problem(numbers.max_sublist_sum, numbers._max_sublist_sum, "number"),
    Problem(lists.mergesort, lists._integers, _NUMBERS),
    Problem(lists.next_palindrome, lists._next_palindrome, _NUMBERS),
    Problem(lists.next_permutation, lists._next_permutation, _NUMBERS),
    Problem(numbers.pascal, numbers._pascal, _NUMBERS, fits=lambda n: n <= 100),
    Problem(numbers.possible_change, numbers._possible_change, "number", fits=lambda coins, total: total <= 150),
    Problem(
        lists.powerset,
        lists._powerset,
        "predicate:every_subset+sequence",
        fits=lambda xs: len(xs) <= 10,
        predicates=(lists.every_subset,),
    ),
    Problem(lists.quicksort, lists._integers, _NUMBERS),
    Problem(texts.rpn_eval, texts._rpn_eval, "rel:1e-9", raises=("ZeroDivisionError",)),
    Problem(texts.shunting_yard, texts._shunting_yard, _LIST),
    Problem(numbers.sieve, numbers._sieve, _NUMBERS, fits=lambda bound: bound <= 1000),
    Problem(numbers.sqrt, numbers._sqrt, "predicate:near_root", predicates=(numbers.near_root,)),
    Problem(numbers.subsequences, numbers._subsequences, _NUMBERS, fits=lambda a, b, k: b - a <= 12),
    Problem(numbers.to_base, numbers._to_base, fits=lambda num, b: num >= 0 and b >= 2),
    Problem(texts.wrap, texts._wrap, _LIST, fits=lambda text, cols: cols >= 1),
)


@lru_cache(maxsize=1)
def problems() -> dict[str, Problem]:
    """Every known program's contract by key `quixbugs/name`."""
    return {problem.key: replace(problem, domain=DOMAINS[problem.entry]) for problem in _PROBLEMS}
