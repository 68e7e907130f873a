"""Protects the references of the benchmark's programs: each against another definition, by brute force."""

import time
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from itertools import combinations, pairwise, permutations, product
from random import Random
from typing import Any

import pytest

from services.tasks import comparators, oracle, values
from services.tasks.comparators import Outcome
from services.tasks.fixture import CheckSet
from services.tasks.oracle import Oracle
from services.tasks.quixbugs.problem import Problem
from services.tasks.quixbugs.problems import problems

DRAWS = 150


def subsequences_of(xs: Any) -> list[tuple[Any, ...]]:
    return [chosen for count in range(len(xs) + 1) for chosen in combinations(xs, count)]


@cache
def edits(one: str, other: str) -> int:
    if not one or not other:
        return len(one) + len(other)
    if one[0] == other[0]:
        return edits(one[1:], other[1:])
    return 1 + min(edits(one[1:], other), edits(one, other[1:]), edits(one[1:], other[1:]))


def is_prime(n: int) -> bool:
    return n > 1 and all(n % d for d in range(2, n))


def tower_moves(height: int, start: int, end: int, moves: list[Any]) -> bool:
    """Whether the moves are legal, move the tower, and are as few as can be."""
    pegs: dict[int, list[int]] = {1: [], 2: [], 3: []}
    pegs[start] = list(range(height, 0, -1))
    for here, there in moves:
        disk = pegs[here].pop()
        if pegs[there] and pegs[there][-1] < disk:
            return False
        pegs[there].append(disk)
    return pegs[end] == list(range(height, 0, -1)) and len(moves) == 2**height - 1


def next_mirrored(digits: list[int]) -> list[int]:
    n = int("".join(map(str, digits))) + 1
    while str(n) != str(n)[::-1]:
        n += 1
    return list(map(int, str(n)))


def is_wrapped(text: str, cols: int, lines: list[str]) -> bool:
    whole = "".join(lines) == text and all(0 < len(line) <= cols for line in lines[:-1]) and len(lines[-1]) <= cols
    greedy = True
    for line, following in pairwise(lines):
        word = following[1:].split(" ")[0]
        cut = not following.startswith(" ")
        room = len(line) + 1 + len(word)
        greedy &= (len(line) == cols and " " not in line) if cut else room > cols or len(following) > 1 + len(word)
    return whole and greedy


def same_value(tokens: list[Any], postfix: list[Any]) -> bool:
    """Python's own grammar has the same ranks."""
    if not tokens:
        return postfix == []
    stack: list[str] = []
    for token in postfix:
        if isinstance(token, int):
            stack.append(f"({token})")
        else:
            right, left = stack.pop(), stack.pop()
            stack.append(f"({left} {token} {right})")
    (grouped,) = stack
    numbers = "".join(f"({token})" if isinstance(token, int) else f" {token} " for token in tokens)
    return normal(grouped) == normal(numbers)


def normal(expression: str) -> str:
    import ast

    return ast.dump(ast.parse(expression, mode="eval"))


def rpn(tokens: list[Any]) -> Any:
    stack: list[Any] = []
    for token in tokens:
        if isinstance(token, float):
            stack.append(token)
        else:
            right, left = stack.pop(), stack.pop()
            stack.append({"+": left.__add__, "-": left.__sub__, "*": left.__mul__, "/": left.__truediv__}[token](right))
    (value,) = stack
    return value


def worth(capacity: int, items: list[list[int]]) -> int:
    sums = [(int(sum(w for w, _ in some)), int(sum(v for _, v in some))) for some in subsequences_of(items)]
    return max(value for weight, value in sums if weight <= capacity)


def flat(xs: list[Any]) -> list[Any]:
    return [y for x in xs for y in (flat(x) if isinstance(x, list) else [x])]


def depths(parens: str) -> bool:
    heights = [parens[:i].count("(") - parens[:i].count(")") for i in range(len(parens) + 1)]
    return min(heights) >= 0 and heights[-1] == 0


def in_order(xs: list[int], got: list[int]) -> bool:
    return all(x <= y for x, y in pairwise(got)) and all(got.count(x) == xs.count(x) for x in xs + got)


RIGHT: dict[str, Callable[..., bool]] = {
    "bitcount": lambda n, got: got == sum(n >> i & 1 for i in range(n.bit_length())),
    "bucketsort": lambda xs, k, got: in_order(xs, got),
    "find_first_in_sorted": lambda xs, x, got: got == min((i for i, y in enumerate(xs) if x == y), default=-1),
    "find_in_sorted": lambda xs, x, got: got == -1 if x not in xs else xs[got] == x,
    "flatten": lambda xs, got: repr(got) == repr(flat(xs)),
    "gcd": lambda a, b, got: got == max((d for d in range(1, max(a, b) + 1) if a % d == b % d == 0), default=0),
    "get_factors": lambda n, got: got == sorted(got) and product_of(got) == n and all(map(is_prime, got)),
    "hanoi": tower_moves,
    "is_valid_parenthesization": lambda parens, got: got is depths(parens),
    "kheapsort": lambda xs, k, got: in_order(xs, got),
    "knapsack": lambda capacity, items, got: got == worth(capacity, items),
    "kth": lambda xs, k, got: got in xs and sum(x < got for x in xs) <= k < sum(x <= got for x in xs),
    "lcs_length": lambda s, t, got: (
        got == max(n for n in range(len(s) + 1) for i in range(len(s) - n + 1) if s[i : i + n] in t)
    ),
    "levenshtein": lambda one, other, got: got == edits(one, other),
    "lis": lambda xs, got: got == max(len(some) for some in subsequences_of(xs) if list(some) == sorted(some)),
    "longest_common_subsequence": lambda a, b, got: (
        tuple(got) in subsequences_of(a)
        and tuple(got) in subsequences_of(b)
        and len(got) == max(len(some) for some in set(subsequences_of(a)) & set(subsequences_of(b)))
    ),
    "max_sublist_sum": lambda xs, got: (
        got == max(sum(xs[i:j]) for i in range(len(xs) + 1) for j in range(i, len(xs) + 1))
    ),
    "mergesort": in_order,
    "quicksort": in_order,
    "next_palindrome": lambda digits, got: got == next_mirrored(digits),
    "next_permutation": lambda xs, got: tuple(got) == min(p for p in permutations(xs) if p > tuple(xs)),
    "pascal": lambda n, got: (
        len(got) == n
        and all(len(row) == i + 1 and sum(row) == 2**i and row[0] == 1 for i, row in enumerate(got))
        and all(got[i][j] == got[i - 1][j - 1] + got[i - 1][j] for i in range(1, n) for j in range(1, i))
    ),
    "possible_change": lambda coins, total, got: (
        got
        == sum(
            sum(map(int.__mul__, coins, counts)) == total
            for counts in product(*(range(max(0, total) // coin + 1) for coin in coins))
        )
    ),
    "powerset": lambda xs, got: (
        len(got) == 2 ** len(xs) == len({tuple(some) for some in got}) and all(set(some) <= set(xs) for some in got)
    ),
    "rpn_eval": lambda tokens, got: got == rpn(tokens),
    "shunting_yard": same_value,
    "sieve": lambda bound, got: got == list(filter(is_prime, range(bound + 1))),
    "sqrt": lambda x, epsilon, got: abs(got * got - x) < 1e-9 * x,
    "subsequences": lambda a, b, k, got: (
        got == [list(some) for some in product(range(a, b), repeat=k) if all(x < y for x, y in pairwise(some))]
    ),
    "to_base": lambda num, b, got: int(got, b) == num and got == got.upper() and got[0] != "0",
    "wrap": is_wrapped,
}
# Brute force is for small inputs.
SMALL: dict[str, Callable[..., bool]] = {
    "gcd": lambda a, b: max(a, b) < 10_000,
    "get_factors": lambda n: n < 200_000,
    "lis": lambda xs: len(xs) <= 11,
    "next_palindrome": lambda digits: len(digits) <= 8,
    "next_permutation": lambda xs: len(xs) <= 7,
    "possible_change": lambda coins, total: total <= 15,
    "kheapsort": lambda xs, k: len(xs) <= 20,
}


def any_size(*args: Any) -> bool:
    return True


def product_of(xs: list[int]) -> int:
    out = 1
    for x in xs:
        out *= x
    return out


def every() -> list[Problem]:
    return list(problems().values())


def name_of(problem: Problem) -> str:
    return problem.entry


@pytest.mark.parametrize("problem", every(), ids=name_of)
def test_reference_agrees_with_another_definition(problem: Problem) -> None:
    rng, oracle_, looked = Random(f"reference {problem.entry}"), Oracle(problem), 0
    small: Callable[..., bool] = SMALL.get(problem.entry, any_size)
    for _ in range(DRAWS):
        args = problem.generate(rng)
        outcome = oracle_.answer(args)
        if not small(*args):
            continue
        if outcome.error is not None:
            with pytest.raises(ZeroDivisionError):
                RIGHT[problem.entry](*deepcopy(args), None)
        else:
            assert RIGHT[problem.entry](*deepcopy(args), outcome.value), (args, outcome.value)
        looked += 1
    assert looked > DRAWS / 3


@pytest.mark.parametrize("problem", every(), ids=name_of)
def test_inputs_travel_and_repeat_with_the_seed(problem: Problem) -> None:
    one, other = Random(5), Random(5)
    drawn = [values.dumps(problem.generate(one)) for _ in range(60)]
    assert drawn == [values.dumps(problem.generate(other)) for _ in range(60)]
    assert len(set(drawn)) > 8
    for text in drawn:
        outcome = Oracle(problem).answer(values.loads(text))
        values.dumps(outcome.value)


@pytest.mark.parametrize("problem", every(), ids=name_of)
def test_oracle_is_pinned_by_digest(problem: Problem) -> None:
    assert oracle.oracle(problem.key, problem.digest).generate(Random(1)) == problem.generate(Random(1))
    with pytest.raises(oracle.OracleMismatch):
        oracle.oracle(problem.key, "sha256:other")


def check_of(name: str) -> CheckSet:
    problem = problems()[f"quixbugs/{name}"]
    return CheckSet(
        problem.key, problem.key, name, problem.comparator, "E3", 9, (), 0.1, (), oracle_digest=problem.digest
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "args", "right", "wrong"),
    [
        ("find_in_sorted", ([1, 5, 5, 5], 5), [1, 2, 3], [0, -1, 4, -3, True, 2.0, None]),
        ("find_in_sorted", ([1, 5], 3), [-1], [0, None, False, -2]),
        ("longest_common_subsequence", ("abc", "acb"), ["ab", "ac"], ["a", "cb", "abc", "", None, ["a", "b"]]),
        ("longest_common_subsequence", ("", "x"), [""], [None, [], "x"]),
        (
            "powerset",
            ([1, "1"],),
            [[[], [1], ["1"], [1, "1"]], [["1", 1], (), (1,), ("1",)], ((), ("1",), (1,), ("1", 1))],
            [[[1], ["1"], [1, "1"]], [[], [], [1], ["1"], [1, "1"]], [[], [1], [1], [1, "1"]], [[], 1, "1", [1]], None],
        ),
        ("sqrt", (4, 0.2), [2, 2.0, 2.15, 1.81], [2.3, -2.0, "2.0", True, None, float("nan"), float("inf")]),
        ("max_sublist_sum", ([2],), [2, 2.0], [3, True, "2", None, [2]]),
        ("sieve", (3,), [[2, 3], (2, 3), [2.0, 3]], [[3, 2], {2, 3}, [2, 3, 3], 2, None, [2, True]]),
        ("find_first_in_sorted", ([7],  7), [0], [0.0, False, -1, None]),
        ("is_valid_parenthesization", ("()",), [True], [1, 1.0, "True", None, False]),
        ("rpn_eval", ([1.0, 3.0, "/"],), [1 / 3, 0.3333333333333], [0.3333, "0.33", None, True]),
        ("flatten", ([0, [False]],), [[0, False], (0, False)], [[False, 0], [0, 0], [0.0, False]]),
    ],
)  # fmt: skip
def test_what_counts_as_right(name: str, args: tuple[Any, ...], right: list[Any], wrong: list[Any]) -> None:
    check = check_of(name)
    expected = check.expected(args)
    for value in right:
        assert check.agrees(expected, Outcome(value=value), args), value
    for value in wrong:
        assert not check.agrees(expected, Outcome(value=value), args), value
    assert not check.agrees(expected, Outcome(error="ValueError"), args)


def test_division_by_zero_must_raise() -> None:
    check = check_of("rpn_eval")
    args = ([1.0, 0.0, "/"],)
    assert check.expected(args).error == "ZeroDivisionError"
    assert not check.agrees(check.expected(args), Outcome(value=0.0), args)
    assert check.agrees(check.expected(args), Outcome(error="ZeroDivisionError"), args)


def test_every_comparator_is_known() -> None:
    for problem in every():
        parsed = comparators.parse(problem.comparator)
        assert parsed.predicate in ("", *(predicate.__name__ for predicate in problem.predicates))
        assert not parsed.arguments, "no definition says what becomes of the arguments"


@pytest.mark.parametrize("problem", every(), ids=name_of)
def test_every_domain_is_stated_and_every_stratum_is_answered(problem: Problem) -> None:
    """In words for people; and what is drawn crosses the wire, follows from the seed, and has an answer in no time."""
    oracle_ = Oracle(problem)
    assert 70 < len(problem.domain.statement) < 500
    assert len({stratum.name for stratum in problem.domain.strata}) == len(problem.domain.strata) >= 4
    for stratum in problem.domain.strata:
        for seed in range(5):
            args = stratum.draw(Random(seed))
            assert values.loads(values.dumps(args)) == args == stratum.draw(Random(seed))
            began = time.process_time()
            values.dumps(oracle_.answer(args).value)
            assert time.process_time() - began < 0.1
