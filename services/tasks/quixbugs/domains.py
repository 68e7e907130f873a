"""What each program of the benchmark is asked: its domain in words, and the strata beside its own draws.

Several of the benchmark's right programs take exponential time or stop at Python's recursion limit: sizes end before.
"""

from services.tasks.domain import Domain
from services.tasks.quixbugs import list_strata, number_strata, text_strata
from services.tasks.strata import INTS, TEXT

_LIST = f"a list of up to 320 {INTS}"
_RIGHT = "A list, tuple or generator counts alike, and 2 as 2.0."

DOMAINS = {
    "bitcount": Domain(
        "n: an int from 0 to 2^300. The answer is the number of ones in its binary notation.", number_strata.BITS
    ),
    "bucketsort": Domain(
        "arr: a list of up to 320 ints from 0 to k - 1; k: an int from 1 to 2000. The answer: arr in ascending order. "
        f"{_RIGHT}",
        list_strata.BUCKETS,
    ),
    "find_first_in_sorted": Domain(
        f"arr: {_LIST}, ascending; x: such an int. The answer is the lowest index of x, or -1.", list_strata.SORTED
    ),
    "find_in_sorted": Domain(
        f"arr: {_LIST}, ascending; x: such an int. The answer is an index of x (any), or -1.", list_strata.SORTED
    ),
    "flatten": Domain(
        "arr: a list of up to 320 items: ints, texts, floats, truth values, None, or lists of such, up to 12 deep. "
        "The answer are the items that are no lists, in order, as a list, tuple or generator.",
        list_strata.NESTED,
    ),
    "gcd": Domain(
        "a, b: ints from 0 to 10^31. The answer is their greatest common divisor; 0 for two zeros.",
        number_strata.DIVIDED,
    ),
    "get_factors": Domain(
        "n: an int from 1 to 110000, or a product of two primes below 1100, or one of primes below 14 (to 2^300). The "
        f"answer are its prime factors, ascending, each as often as it divides n. {_RIGHT}",
        number_strata.FACTORED,
    ),
    "hanoi": Domain(
        "height: an int from 0 to 10; start, end: two different pegs of 1, 2, 3. The answer is the shortest list of "
        f"moves (from, to) of the tower of Hanoi from start to end. {_RIGHT}",
        number_strata.TOWERS,
    ),
    "is_valid_parenthesization": Domain(
        "parens: up to 320 characters, each ( or ). The answer is whether they are balanced.", text_strata.BRACKETS
    ),
    "kheapsort": Domain(
        f"arr: {_LIST}, distinct, each at most k places from where it belongs; k: an int from 0 up. The answer: arr in "
        f"ascending order. {_RIGHT}",
        list_strata.MOVED,
    ),
    "knapsack": Domain(
        "capacity: an int from 0 to 1000; items: up to 12 pairs [weight, value] of ints from 1 up. The answer is the "
        "largest value of a choice of items, each taken once at most, that weigh no more than capacity together.",
        list_strata.PACKED,
    ),
    "kth": Domain(
        f"arr: {_LIST}, at least one; k: an index. The answer is the element at index k of arr in order.",
        list_strata.PLACED,
    ),
    "lcs_length": Domain(
        "s, t: texts of up to 60 characters of any script. The answer is the length of their longest common substring.",
        text_strata.PIECES,
    ),
    "levenshtein": Domain(
        "source, target: texts of any script, of up to 13 characters together, or one of them empty and the other of "
        "up to 320. The answer is the edit distance: fewest insertions, removals and changes of one character.",
        text_strata.short_pairs(5),
    ),
    "lis": Domain(
        f"arr: a list of up to 150 distinct {INTS}. The answer is the length of its longest increasing subsequence.",
        list_strata.RISING,
    ),
    "longest_common_subsequence": Domain(
        "a, b: texts of any script, of up to 22 characters together, or one of them empty and the other of up to 320. "
        "The answer is a longest common subsequence of both, any of them.",
        text_strata.short_pairs(6),
    ),
    "max_sublist_sum": Domain(
        f"arr: a list of up to 120 {INTS}. The answer is the largest sum of a part without gaps, which may be empty.",
        list_strata.SUMMED,
    ),
    "mergesort": Domain(f"arr: {_LIST}. The answer: arr in ascending order. {_RIGHT}", list_strata.ANY),
    "next_palindrome": Domain(
        "digit_list: the digits of a palindrome, 1 to 10 of them, or up to 300 nines. The answer are the digits of "
        f"the next larger palindrome. {_RIGHT}",
        list_strata.PALINDROMIC,
    ),
    "next_permutation": Domain(
        f"perm: a list of 2 to 120 distinct {INTS}, not in descending order. The answer is the next permutation of it "
        f"in lexicographic order. {_RIGHT}",
        list_strata.PERMUTED,
    ),
    "pascal": Domain(
        f"n: an int from 1 to 100. The answer are the first n rows of Pascal's triangle. {_RIGHT}",
        number_strata.TRIANGLES,
    ),
    "possible_change": Domain(
        "coins: up to 9 distinct ints from 1 up, in any order; total: an int up to 300. The answer is the number of "
        "ways to make total of coins, each as often as one likes, their order not counting; 1 for 0, 0 for less.",
        number_strata.CHANGE,
    ),
    "powerset": Domain(
        "arr: a list of up to 10 distinct ints, texts, floats or None. The answer are all of its subsets as lists, in "
        "any order.",
        list_strata.SUBSETS,
    ),
    "quicksort": Domain(f"arr: {_LIST}. The answer: arr in ascending order. {_RIGHT}", list_strata.ANY),
    "rpn_eval": Domain(
        "tokens: a postfix expression of floats and the operators + - * /, of up to 300 tokens. The answer is its "
        "value (to nine digits); a division by zero raises ZeroDivisionError.",
        text_strata.POSTFIX,
    ),
    "shunting_yard": Domain(
        "tokens: an infix expression of ints and the operators + - * / between them, of up to 250 tokens, or nothing. "
        "The answer is its postfix form; * and / bind closer than + and -, equals to the left. A list, tuple or "
        "generator counts alike.",
        text_strata.INFIX,
    ),
    "sieve": Domain(
        f"max: an int from 1 to 1000. The answer are the primes up to and with max, ascending. {_RIGHT}",
        number_strata.SIEVED,
    ),
    "sqrt": Domain(
        "x: a number from 1 to 10^6; epsilon: a float from 10^-9 to 1, no less than 10^-3 where x is above 10^4. The "
        "answer is a number at most epsilon away from the square root of x.",
        number_strata.ROOTS,
    ),
    "subsequences": Domain(
        "a, b: ints of either sign, at most 120 apart; k: an int from 1 up. The answer are all ascending lists of k "
        f"ints from a to b - 1, in lexicographic order. {_RIGHT}",
        number_strata.CHOSEN,
    ),
    "to_base": Domain(
        "num: an int from 1 to 2^301; b: an int from 2 to 36. The answer is the text of num in base b, digits 0-9 and "
        "A-Z.",
        number_strata.BASED,
    ),
    "wrap": Domain(
        f"text: {TEXT}; cols: an int from 1 up. The answer are lines that join to text: each ends before the last "
        "blank within its first cols + 1 characters, or after cols where there is none, and begins with that blank. "
        "No word behind a blank is of cols or more characters. A list, tuple or generator counts alike.",
        text_strata.WRAPPED,
    ),
}
