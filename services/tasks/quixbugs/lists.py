"""References and inputs of the programs about lists: sorting, searching, choosing, arranging."""

from bisect import bisect_left
from collections import Counter
from itertools import combinations
from math import factorial
from random import Random
from typing import Any

from services.tasks import values
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
    k = rng.choice((0, 1, 1, 2, 2, 3, max(0, len(xs) - 1), len(xs) + 1))
    start = rng.randint(1, max(1, k)) if rng.random() < 0.7 else 0
    # Inside a block of k + 1 nothing can move by more than k.
    out = xs[:start]
    rng.shuffle(out)
    for first in range(start, len(xs), k + 1):
        block = xs[first : first + k + 1]
        if rng.random() < 0.5:
            block.reverse()
        else:
            rng.shuffle(block)
        out += block
    return out, k


def kth(xs: list[int], k: int) -> int:
    """The element with `k` elements before it in order."""
    return sorted(xs)[k]


def _kth(rng: Random) -> tuple[Any, ...]:
    xs = draws.integers(rng, 1, 8)
    kind = rng.randrange(5)
    if kind == 0:  # the first element again and again, and some above
        first = rng.randint(-2, 2)
        xs = [first] * rng.randint(1, 4) + rng.sample(range(first - 3, first + 9), rng.randint(2, 6))
        xs = [first, *rng.sample(xs, len(xs))]
    elif kind == 1:
        xs = [rng.randint(-2, 3) for _ in range(rng.randint(4, 9))]
    return xs, rng.choice((0, len(xs) - 1, rng.randrange(len(xs)), rng.randrange(len(xs) // 2, len(xs))))


def find_first_in_sorted(xs: list[int], x: int) -> int:
    """Lowest index of `x`, -1 where it is absent."""
    index = bisect_left(xs, x)
    return index if index < len(xs) and xs[index] == x else -1


def find_in_sorted(xs: list[int], x: int) -> int:
    """An index of `x` (this one: the lowest), -1 where it is absent."""
    return xs.index(x) if x in xs else -1


def an_index(args: tuple[Any, ...], value: Any) -> bool:
    """Whether `value` is any index of the element, or -1 and the element is absent."""
    xs, x = args
    if type(value) is not int:
        return False
    return x not in xs if value == -1 else 0 <= value < len(xs) and xs[value] == x


def _sorted_and_one(rng: Random) -> tuple[Any, ...]:
    kind = rng.randrange(9)
    if kind == 0:
        return [], rng.randint(-2, 2)
    if kind == 1:
        one = rng.randint(-9, 9)
        return [one], one + rng.choice((0, 0, -1, 1))
    if kind in (2, 3):  # a run of equal ones, now and then nothing else
        one = rng.randint(-5, 5)
        below = [rng.randint(-20, one - 1) for _ in range(rng.choice((0, 0, 1, 2, 3, 5)))]
        above = [rng.randint(one + 1, 20) for _ in range(rng.choice((0, 0, 1, 2, 3, 5)))]
        return sorted(below + [one] * rng.randint(2, 8) + above), one
    if kind in (4, 5, 6):
        xs = sorted(draws.distinct(rng, 1, 9) if kind == 4 else rng.sample(range(-9, 19), rng.randint(2, 8)))
        return xs, rng.choice(xs)
    xs = sorted(draws.integers(rng, 1, 8))
    inside = rng.choice(xs)
    return xs, rng.choice((xs[0] - 1, xs[0] - 1, xs[-1] + 1, xs[-1] + 1, inside + 1, inside - 1))


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


def every_subset(args: tuple[Any, ...], value: Any) -> bool:
    """Whether `value` holds every subset once, in any order outside and inside."""

    def texts(subset: Any) -> tuple[str, ...]:
        if type(subset) not in (list, tuple):
            raise TypeError("a subset is a list")
        return tuple(sorted(map(values.dumps, subset)))

    return type(value) in (list, tuple) and Counter(map(texts, value)) == Counter(map(texts, powerset(args[0])))


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
    order = rng.randrange(8)
    if order == 0:
        xs.sort()
    elif order == 1:
        xs.sort(reverse=True)
    elif order == 2 and xs:
        xs = [*sorted(xs), min(xs) - 1]
    elif order in (3, 4):  # an increasing sequence, and far above it a decreasing one in between
        rising = iter(sorted(rng.sample(range(-50, 50), rng.randint(2, 6))))
        falling = iter(sorted(rng.sample(range(100, 300), 30), reverse=True))
        xs = [y for x in rising for y in (x, *(next(falling) for _ in range(rng.randint(2, 5))))]
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
    # Of ten digits at most: counting up to the next one is slow, and right.
    odd = rng.random() < 0.5
    kind = rng.randrange(5)
    if kind == 0:
        return ([9] * rng.choice((1, 2, 2, 3, 4, 5, 8)),)
    if kind == 1:
        return ([rng.choice((9, rng.randint(0, 9)))],)
    front = [rng.randint(1, 9)] + [rng.randint(0, 9) for _ in range(rng.randint(0, 4))]
    if kind == 2:  # nines in the middle
        front = [rng.randint(1, 8), *front[1:2], *[9] * rng.randint(1, 3)]
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
    items = [[rng.randint(1, high), rng.randint(1, 20)] for _ in range(rng.choice((1, 2, 3, 4, 5, 6, 7, 9)))]
    weights = [weight for weight, _ in items]
    kind = rng.randrange(8)
    if kind == 0:
        return rng.choice(((0, items), (rng.randint(0, 9), []), (0, [])))
    if kind == 1:
        return sum(weights) + rng.choice((0, 0, 3)), items
    if kind < 5:
        return sum(rng.sample(weights, rng.randint(1, len(weights)))), items
    # Dense items that leave a gap which a lighter choice fills: taking the best ratio first goes wrong here.
    items = [[weight, weight * 3 + rng.randint(-2, 2)] for weight in (rng.randint(2, high + 3) for _ in range(6))]
    weights = [weight for weight, _ in items]
    return rng.randint(max(weights), sum(weights) - 1), items
