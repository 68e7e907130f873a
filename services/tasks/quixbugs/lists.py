"""References and inputs of the programs about lists: sorting, searching, choosing, arranging."""

from bisect import bisect_left
from itertools import combinations
from math import factorial
from random import Random
from typing import Any

from services.tasks.quixbugs import draws


def bucketsort(xs: list[int], k: int) -> list[int]:
    """Sorted; every x is in range(k)."""
    del k
    return sorted(xs)


def _bucketsort(rng: Random) -> tuple[Any, ...]:
    k = rng.choice((1, 2, 5, 10, 40))
    xs = [rng.randrange(k) for _ in range(draws.size(rng))]
    if xs and rng.random() < 0.3:
        xs[rng.randrange(len(xs))] = k - 1
    return xs, k


def mergesort(xs: list[int]) -> list[int]:
    """Sorted."""
    return sorted(xs)


def quicksort(xs: list[int]) -> list[int]:
    """Sorted."""
    return sorted(xs)


def _integers(rng: Random) -> tuple[Any, ...]:
    return (draws.integers(rng),)


def kheapsort(xs: list[int], k: int) -> list[int]:
    """Sorted; the elements are distinct and at most `k` places from where they belong."""
    del k
    return sorted(xs)


def _kheapsort(rng: Random) -> tuple[Any, ...]:
    xs = sorted(draws.distinct(rng))
    k = rng.choice((0, 1, 2, 3, max(0, len(xs) - 1), len(xs) + 1))
    start = rng.randint(0, k)
    # Inside a block of k + 1 nothing can move by more than k.
    out = xs[:start]
    rng.shuffle(out)
    for first in range(start, len(xs), k + 1):
        block = xs[first : first + k + 1]
        rng.shuffle(block)
        out += block
    return out, k


def kth(xs: list[int], k: int) -> int:
    """The element with `k` elements before it in order."""
    return sorted(xs)[k]


def _kth(rng: Random) -> tuple[Any, ...]:
    xs = draws.integers(rng, 1, 8)
    return xs, rng.choice((0, len(xs) - 1, rng.randrange(len(xs)), rng.randrange(len(xs))))


def find_first_in_sorted(xs: list[int], x: int) -> int:
    """Lowest index of `x`, -1 where it is absent."""
    index = bisect_left(xs, x)
    return index if index < len(xs) and xs[index] == x else -1


def find_in_sorted(xs: list[int], x: int) -> int:
    """An index of `x` (this one: the lowest), -1 where it is absent."""
    return xs.index(x) if x in xs else -1


def _sorted_and_one(rng: Random) -> tuple[Any, ...]:
    xs = sorted(draws.integers(rng, 0, 8))
    if not xs:
        return xs, rng.randint(-2, 2)
    if rng.random() < 0.3:
        xs = sorted(xs + [rng.choice(xs)] * rng.randint(1, 4))
    inside = rng.choice(xs)
    return xs, rng.choice((xs[0], xs[-1], inside, inside, xs[0] - 1, xs[-1] + 1, inside + 1, inside - 1))


def flatten(xs: list[Any]) -> list[Any]:
    """The items that are no lists, left to right; as a list or a generator."""
    found: list[Any] = []
    waiting: list[Any] = [xs]
    while waiting:
        item = waiting.pop()
        if isinstance(item, list):
            waiting += reversed(item)
        else:
            found.append(item)
    return found


def _flatten(rng: Random) -> tuple[Any, ...]:
    kind = rng.randrange(8)
    if kind == 0:
        return ([],)
    if kind == 1:
        return (rng.choice(([[]], [[], []], [[], [[]]], [[[[]]], []])),)
    if kind == 2:
        return ([_leaf(rng) for _ in range(rng.randint(1, 6))],)
    if kind == 3:
        item: Any = _leaf(rng)
        for _ in range(rng.randint(2, 8)):
            item = [item]
        return ([item, _leaf(rng)],)
    return ([_nested(rng, rng.randint(1, 4)) for _ in range(rng.randint(1, 5))],)


def _leaf(rng: Random) -> Any:
    return rng.choice((rng.randint(-3, 9), rng.randint(0, 1), rng.choice(("", "a", "moe", "ab")), None, 0.5, False))


def _nested(rng: Random, depth: int) -> Any:
    if depth == 0 or rng.random() < 0.35:
        return _leaf(rng)
    return [_nested(rng, depth - 1) for _ in range(rng.randint(0, 3))]


def powerset(xs: list[Any]) -> list[list[Any]]:
    """Every subset once."""
    return [list(chosen) for count in range(len(xs) + 1) for chosen in combinations(xs, count)]


def _powerset(rng: Random) -> tuple[Any, ...]:
    count = rng.choice((0, 1, 2, 3, 4, rng.randint(5, 7)))
    pool = rng.choice((range(-4, 9), ("a", "b", "df", "x", "z", "", "qq"), (0, 1, "0", "1", 2.5, None, 7)))
    return (rng.sample(list(pool), count),)


def lis(xs: list[int]) -> int:
    """Length of the longest increasing subsequence; the elements are distinct."""
    ends: list[int] = []
    for x in xs:
        place = bisect_left(ends, x)
        ends[place : place + 1] = [x]
    return len(ends)


def _lis(rng: Random) -> tuple[Any, ...]:
    xs = draws.distinct(rng, 0, 9)[:40]
    order = rng.randrange(7)
    if order == 0:
        xs.sort()
    elif order == 1:
        xs.sort(reverse=True)
    elif order == 2 and xs:
        xs = [*sorted(xs), min(xs) - 1]
    return (xs,)


def next_permutation(xs: list[int]) -> list[int]:
    """The permutation whose rank (in factorial digits) is one higher; the elements are distinct and not in reverse."""
    rank, left = 0, sorted(xs)
    for x in xs:
        rank = rank * len(left) + left.index(x)
        left.remove(x)
    rank, left, found = rank + 1, sorted(xs), []
    for count in range(len(xs) - 1, -1, -1):
        index, rank = divmod(rank, factorial(count))
        found.append(left.pop(index))
    return found


def _next_permutation(rng: Random) -> tuple[Any, ...]:
    xs = draws.distinct(rng, 2, 6)[:25]
    kind = rng.randrange(6)
    if kind == 0:
        xs.sort()
    elif kind == 1:  # all but the first in reverse
        rest = sorted(xs[1:], reverse=True)
        xs = [xs[0], *rest]
    elif kind == 2:  # the change happens in front of a long descending end
        cut = rng.randrange(len(xs) - 1)
        xs = xs[:cut] + sorted(xs[cut:])
        xs = [*xs[: cut + 1], *reversed(xs[cut + 1 :])]
    if xs == sorted(xs, reverse=True):
        xs.reverse()
    return (xs,)


def next_palindrome(digits: list[int]) -> list[int]:
    """Digits of the smallest palindrome above; `digits` are one."""
    half = int("".join(map(str, digits[: (len(digits) + 1) // 2]))) + 1
    if all(digit == 9 for digit in digits):
        return [1] + [0] * (len(digits) - 1) + [1]
    front = [int(char) for char in str(half)]
    return front + front[::-1][len(digits) % 2 :]


def _next_palindrome(rng: Random) -> tuple[Any, ...]:
    odd = rng.random() < 0.5
    kind = rng.randrange(5)
    if kind == 0:
        return ([9] * rng.choice((1, 2, 3, 4, 5, 8)),)
    if kind == 1:
        return ([rng.randint(0, 9)],)
    front = [rng.randint(1, 9)] + [rng.randint(0, 9) for _ in range(rng.randint(0, 4 if kind < 4 else 8))]
    if kind == 2:  # nines in the middle
        front = [rng.randint(1, 8), *front[1:3], *[9] * rng.randint(1, 3)]
    return (front + front[::-1][odd:],)


def knapsack(capacity: int, items: list[Any]) -> int:
    """Best value of a choice of (weight, value) items whose weight is at most `capacity`."""
    best = {0: 0}
    for weight, value in items:
        for used, worth in sorted(best.items(), reverse=True):
            if used + weight <= capacity:
                best[used + weight] = max(best.get(used + weight, 0), worth + value)
    return max(best.values())


def _knapsack(rng: Random) -> tuple[Any, ...]:
    high = rng.choice((4, 9, 9, 20))
    items = [[rng.randint(1, high), rng.randint(1, 20)] for _ in range(rng.choice((0, 1, 2, 3, 4, 5, 6, 9)))]
    weights = [weight for weight, _ in items]
    exact = sum(rng.sample(weights, rng.randint(0, len(weights))))
    return rng.choice((exact, exact, exact, sum(weights), rng.randint(0, 2 * high), 0)), items
