"""The 31 programs that we know: each name's contract."""

from functools import lru_cache

from services.tasks.quixbugs import lists, numbers, texts
from services.tasks.quixbugs.problem import Problem

# Lists, tuples and generators are one in answers: JSON cases cannot tell them apart.
_LISTS = "sequence"

_PROBLEMS = (
    Problem(numbers.bitcount, numbers._bitcount),
    Problem(lists.bucketsort, lists._bucketsort, _LISTS),
    Problem(lists.find_first_in_sorted, lists._sorted_and_one),
    Problem(lists.find_in_sorted, lists._sorted_and_one),
    Problem(lists.flatten, lists._flatten, _LISTS),
    Problem(numbers.gcd, numbers._gcd),
    Problem(numbers.get_factors, numbers._get_factors, _LISTS),
    Problem(numbers.hanoi, numbers._hanoi, _LISTS, fits=lambda height, start, end: start != end),
    Problem(texts.is_valid_parenthesization, texts._parens),
    Problem(lists.kheapsort, lists._kheapsort, _LISTS),
    Problem(lists.knapsack, lists._knapsack, fits=lambda capacity, items: capacity <= 1000),
    Problem(lists.kth, lists._kth),
    Problem(texts.lcs_length, texts._lcs_length),
    Problem(texts.levenshtein, texts._levenshtein, fits=texts._short),
    Problem(lists.lis, lists._lis),
    Problem(texts.longest_common_subsequence, texts._subsequence_pair, fits=texts._few_letters),
    Problem(numbers.max_sublist_sum, numbers._max_sublist_sum),
    Problem(lists.mergesort, lists._integers, _LISTS),
    Problem(lists.next_palindrome, lists._next_palindrome, _LISTS),
    Problem(lists.next_permutation, lists._next_permutation, _LISTS),
    Problem(numbers.pascal, numbers._pascal, _LISTS),
    Problem(numbers.possible_change, numbers._possible_change),
    Problem(lists.powerset, lists._powerset, _LISTS),
    Problem(lists.quicksort, lists._integers, _LISTS),
    Problem(texts.rpn_eval, texts._rpn_eval, "rel:1e-9", raises=("ZeroDivisionError",)),
    Problem(texts.shunting_yard, texts._shunting_yard, _LISTS),
    Problem(numbers.sieve, numbers._sieve, _LISTS),
    Problem(numbers.sqrt, numbers._sqrt, "rel:1e-4"),
    Problem(numbers.subsequences, numbers._subsequences, _LISTS),
    Problem(numbers.to_base, numbers._to_base),
    Problem(texts.wrap, texts._wrap, _LISTS),
)


@lru_cache(maxsize=1)
def problems() -> dict[str, Problem]:
    """Every known program's contract by key `quixbugs/name`."""
    return {problem.key: problem for problem in _PROBLEMS}
