"""Right programs for every function of the catalogue, each by another algorithm or in another style than the reference.

All of them must pass every check run: one that fails says that a domain is stated wrongly, or too widely.
"""

RIGHT: dict[str, tuple[str, ...]] = {
    "searching/lower_bound": (
        """
from bisect import bisect_left

def lower_bound(xs, x):
    return bisect_left(xs, x)
""",
        """
def lower_bound(xs, x):
    return sum(y < x for y in xs)
""",
        """
def lower_bound(xs, x):
    def go(lo, hi):
        if lo == hi:
            return lo
        mid = lo + (hi - lo) // 2
        return go(mid + 1, hi) if xs[mid] < x else go(lo, mid)
    return go(0, len(xs))
""",
    ),
    "searching/last_index": (
        """
def last_index(xs, x):
    found = -1
    for i, y in enumerate(xs):
        if y == x:
            found = i
    return found
""",
        """
def last_index(xs, x):
    try:
        return len(xs) - 1 - xs[::-1].index(x)
    except ValueError:
        return -1
""",
        """
def last_index(xs, x):
    return max((i for i, y in enumerate(xs) if y == x), default=-1)
""",
        """
def last_index(xs, x):
    places = {}
    for i, y in enumerate(xs):
        places[y] = i
    return places.get(x, -1)
""",
    ),
    "searching/first_index": (
        """
def first_index(xs, x):
    return xs.index(x)
""",
        """
def first_index(xs, x):
    def go(i):
        if i == len(xs):
            raise ValueError(f'{x} is not in the list')
        return i if xs[i] == x else go(i + 1)
    return go(0)
""",
        """
def first_index(xs, x):
    places = [i for i, y in enumerate(xs) if y == x]
    if not places:
        raise ValueError
    return places[0]
""",
    ),
    "searching/arg_max": (
        """
def arg_max(xs):
    return xs.index(max(xs))
""",
        """
def arg_max(xs):
    return max(range(len(xs)), key=lambda i: xs[i])
""",
        """
def arg_max(xs):
    if len(xs) == 1:
        return 0
    half = len(xs) // 2
    left = arg_max(xs[:half])
    right = half + arg_max(xs[half:])
    return right if xs[right] > xs[left] else left
""",
        """
import heapq

def arg_max(xs):
    heap = [(-x, i) for i, x in enumerate(xs)]
    heapq.heapify(heap)
    return heap[0][1]
""",
    ),
    "sorting/insertion_sort": (
        """
def insertion_sort(xs):
    xs.sort()
    return xs
""",
        """
def insertion_sort(xs):
    def quick(ys):
        if len(ys) < 2:
            return ys
        pivot = ys[len(ys) // 2]
        return quick([y for y in ys if y < pivot]) + [y for y in ys if y == pivot] + quick([y for y in ys if y > pivot])
    xs[:] = quick(xs)
    return xs
""",
        """
import heapq

def insertion_sort(xs):
    heap = list(xs)
    heapq.heapify(heap)
    for i in range(len(xs)):
        xs[i] = heapq.heappop(heap)
    return xs
""",
        """
def insertion_sort(xs):
    n = len(xs)
    for i in range(n):
        least = i
        for j in range(i + 1, n):
            if xs[j] < xs[least]:
                least = j
        xs[i], xs[least] = xs[least], xs[i]
    return xs
""",
    ),
    "sorting/merge": (
        """
import heapq

def merge(xs, ys):
    return list(heapq.merge(xs, ys))
""",
        """
def merge(xs, ys):
    return sorted(xs + ys)
""",
        """
def merge(xs, ys):
    if not xs or not ys:
        return xs + ys
    if xs[0] <= ys[0]:
        return [xs[0]] + merge(xs[1:], ys)
    return [ys[0]] + merge(xs, ys[1:])
""",
        """
def merge(xs, ys):
    def steps():
        i = j = 0
        while i < len(xs) or j < len(ys):
            if j == len(ys) or (i < len(xs) and xs[i] <= ys[j]):
                yield xs[i]
                i += 1
            else:
                yield ys[j]
                j += 1
    return [*steps()]
""",
    ),
    "sorting/counting_sort": (
        """
def counting_sort(xs, n):
    return sorted(xs)
""",
        """
from collections import Counter

def counting_sort(xs, n):
    return [x for x, times in sorted(Counter(xs).items()) for _ in range(times)]
""",
        """
def counting_sort(xs, n):
    buckets = [[] for _ in range(n)]
    for x in xs:
        buckets[x].append(x)
    return sum(buckets, [])
""",
        """
from itertools import accumulate

def counting_sort(xs, n):
    counts = [0] * (n + 1)
    for x in xs:
        counts[x + 1] += 1
    starts = list(accumulate(counts))
    out = [None] * len(xs)
    for x in xs:
        out[starts[x]] = x
        starts[x] += 1
    return out
""",
    ),
    "sorting/is_sorted": (
        """
def is_sorted(xs):
    return xs == sorted(xs)
""",
        """
def is_sorted(xs):
    return all(a <= b for a, b in zip(xs, xs[1:]))
""",
        """
def is_sorted(xs):
    return len(xs) < 2 or (xs[0] <= xs[1] and is_sorted(xs[1:]))
""",
    ),
    "sorting/insert": (
        """
from bisect import insort

def insert(xs, x):
    ys = list(xs)
    insort(ys, x)
    return ys
""",
        """
def insert(xs, x):
    return [y for y in xs if y < x] + [x] + [y for y in xs if y >= x]
""",
        """
def insert(xs, x):
    if not xs or x <= xs[0]:
        return [x] + xs
    return [xs[0]] + insert(xs[1:], x)
""",
    ),
    "strings/is_palindrome": (
        """
def is_palindrome(s):
    return s == s[::-1]
""",
        """
def is_palindrome(s):
    return len(s) < 2 or (s[0] == s[-1] and is_palindrome(s[1:-1]))
""",
        """
from collections import deque

def is_palindrome(s):
    left = deque(s)
    while len(left) > 1:
        if left.popleft() != left.pop():
            return False
    return True
""",
    ),
    "strings/count_part": (
        """
def count_part(s, p):
    return sum(s.startswith(p, i) for i in range(len(s)))
""",
        """
import re

def count_part(s, p):
    return len(re.findall('(?=' + re.escape(p) + ')', s))
""",
        """
def count_part(s, p):
    n, at = 0, s.find(p)
    while at != -1:
        n += 1
        at = s.find(p, at + 1)
    return n
""",
        """
def count_part(s, p):
    fail = [0]
    k = 0
    for c in p[1:]:
        while k and p[k] != c:
            k = fail[k - 1]
        k += p[k] == c
        fail.append(k)
    k = n = 0
    for c in s:
        while k and (k == len(p) or p[k] != c):
            k = fail[k - 1]
        if k < len(p) and p[k] == c:
            k += 1
        n += k == len(p)
    return n
""",
    ),
    "strings/common_prefix": (
        """
import os.path

def common_prefix(s, p):
    return os.path.commonprefix([s, p])
""",
        """
from itertools import takewhile

def common_prefix(s, p):
    return ''.join(a for a, b in takewhile(lambda pair: pair[0] == pair[1], zip(s, p)))
""",
        """
def common_prefix(s, p):
    if not s or not p or s[0] != p[0]:
        return ''
    return s[0] + common_prefix(s[1:], p[1:])
""",
        """
def common_prefix(s, p):
    lo, hi = 0, min(len(s), len(p))
    while lo < hi:
        mid = (lo + hi + 1) // 2
        if s[:mid] == p[:mid]:
            lo = mid
        else:
            hi = mid - 1
    return s[:lo]
""",
    ),
    "strings/squeeze": (
        """
from itertools import groupby

def squeeze(s):
    return ''.join(c for c, _ in groupby(s))
""",
        r"""
import re

def squeeze(s):
    return re.sub(r'(.)\1+', r'\1', s)
""",
        """
def squeeze(s):
    return ''.join(c for i, c in enumerate(s) if i == 0 or s[i - 1] != c)
""",
        """
from functools import reduce

def squeeze(s):
    return reduce(lambda out, c: out if out.endswith(c) else out + c, s, '')
""",
    ),
    "strings/shift": (
        """
import string

def shift(s, n):
    letters = string.ascii_lowercase
    n %= 26
    return s.translate(str.maketrans(letters, letters[n:] + letters[:n]))
""",
        """
def shift(s, n):
    letters = 'abcdefghijklmnopqrstuvwxyz'
    return ''.join(letters[(letters.index(c) + n) % 26] for c in s)
""",
        """
from collections import deque

def shift(s, n):
    wheel = deque('abcdefghijklmnopqrstuvwxyz')
    wheel.rotate(-n)
    table = dict(zip('abcdefghijklmnopqrstuvwxyz', wheel))
    return ''.join(map(table.__getitem__, s))
""",
        """
def shift(s, n):
    if not s:
        return s
    return chr((ord(s[0]) - ord('a') + n) % 26 + ord('a')) + shift(s[1:], n)
""",
    ),
    "numbers/gcd": (
        """
import math

def gcd(a, b):
    return math.gcd(a, b)
""",
        """
def gcd(a, b):
    return a if b == 0 else gcd(b, a % b)
""",
        """
def gcd(a, b):
    if a == 0 or b == 0:
        return a + b
    shared = 0
    while (a | b) & 1 == 0:
        a, b, shared = a >> 1, b >> 1, shared + 1
    while a & 1 == 0:
        a >>= 1
    while b:
        while b & 1 == 0:
            b >>= 1
        if a > b:
            a, b = b, a
        b -= a
    return a << shared
""",
        """
from fractions import Fraction

def gcd(a, b):
    return a // Fraction(a, b).numerator if a and b else a or b
""",
    ),
    "numbers/digit_sum": (
        """
def digit_sum(n):
    return sum(map(int, str(n)))
""",
        """
def digit_sum(n):
    return n if n < 10 else n % 10 + digit_sum(n // 10)
""",
        """
def digit_sum(n):
    return sum(d * str(n).count(str(d)) for d in range(1, 10))
""",
    ),
    "numbers/is_prime": (
        """
def is_prime(n):
    return n > 1 and all(n % i for i in range(2, n))
""",
        """
def is_prime(n):
    return [d for d in range(1, n + 1) if n % d == 0] == [1, n] if n > 1 else False
""",
        """
def is_prime(n):
    sieve = [True] * (n + 1)
    sieve[0:2] = [False] * len(sieve[0:2])
    for i in range(2, int(n ** 0.5) + 1):
        if sieve[i]:
            for j in range(i * i, n + 1, i):
                sieve[j] = False
    return sieve[n]
""",
        """
def is_prime(n):
    if n < 4:
        return n > 1
    if n % 2 == 0 or n % 3 == 0:
        return False
    return all(n % i and n % (i + 2) for i in range(5, int(n ** 0.5) + 1, 6))
""",
        """
def is_prime(n):
    if n < 2:
        return False
    for a in (2, 3, 5, 7):
        if n % a == 0:
            return n == a
    d, r = n - 1, 0
    while d % 2 == 0:
        d, r = d // 2, r + 1
    for a in (2, 3, 5, 7):
        x = pow(a, d, n)
        if x in (1, n - 1):
            continue
        for _ in range(r - 1):
            x = x * x % n
            if x == n - 1:
                break
        else:
            return False
    return True
""",
        """
import math

def is_prime(n):
    return n > 1 and math.factorial(n - 1) % n == n - 1
""",
    ),
    "numbers/to_base": (
        """
def to_base(n, b):
    return [n] if n < b else to_base(n // b, b) + [n % b]
""",
        """
def to_base(n, b):
    digits = []
    while True:
        n, d = divmod(n, b)
        digits.insert(0, d)
        if n == 0:
            return digits
""",
        """
def to_base(n, b):
    power = 1
    while power * b <= n:
        power *= b
    out = []
    while power:
        out.append(n // power)
        n %= power
        power //= b
    return out
""",
    ),
    "numbers/fib": (
        """
from functools import lru_cache

@lru_cache(maxsize=None)
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)
""",
        """
def fib(n):
    def double(k):
        if k == 0:
            return 0, 1
        a, b = double(k // 2)
        c, d = a * (2 * b - a), a * a + b * b
        return (d, c + d) if k % 2 else (c, d)
    return double(n)[0]
""",
        """
def fib(n):
    def times(p, q):
        return [[sum(p[i][k] * q[k][j] for k in (0, 1)) for j in (0, 1)] for i in (0, 1)]
    power, base = [[1, 0], [0, 1]], [[1, 1], [1, 0]]
    while n:
        if n & 1:
            power = times(power, base)
        base = times(base, base)
        n >>= 1
    return power[0][1]
""",
        """
import math

def fib(n):
    return sum(math.comb(n - 1 - k, k) for k in range(n) if n - 1 - k >= k)
""",
    ),
    "graphs/reach": (
        """
from collections import deque

def reach(g, x):
    seen, order, waiting = {x}, [], deque([x])
    while waiting:
        node = waiting.popleft()
        order.append(node)
        for y in g[node]:
            if y not in seen:
                seen.add(y)
                waiting.append(y)
    return order
""",
        """
def reach(g, x):
    found = {x: None}
    level = [x]
    while level:
        following = []
        for node in level:
            for y in g[node]:
                if y not in found:
                    found[y] = None
                    following.append(y)
        level = following
    return list(found)
""",
        """
def reach(g, x):
    def go(level, seen):
        if not level:
            return []
        new = list(dict.fromkeys(y for node in level for y in g[node] if y not in seen))
        return level + go(new, seen | set(new))
    return go([x], {x})
""",
    ),
    "graphs/components": (
        """
def components(n, es):
    parent = list(range(n))

    def find(x):
        while parent[x] != x:
            parent[x] = parent[parent[x]]
            x = parent[x]
        return x

    for a, b in es:
        parent[find(a)] = find(b)
    return sum(find(x) == x for x in range(n))
""",
        """
def components(n, es):
    near = {x: set() for x in range(n)}
    for a, b in es:
        near[a].add(b)
        near[b].add(a)
    seen = set()

    def visit(x):
        seen.add(x)
        for y in near[x]:
            if y not in seen:
                visit(y)

    count = 0
    for x in range(n):
        if x not in seen:
            count += 1
            visit(x)
    return count
""",
        """
def components(n, es):
    groups = [{x} for x in range(n)]
    for a, b in es:
        one = next(g for g in groups if a in g)
        other = next(g for g in groups if b in g)
        if one is not other:
            groups.remove(other)
            one |= other
    return len(groups)
""",
        """
def components(n, es):
    parent = list(range(n))

    def find(x):
        return x if parent[x] == x else find(parent[x])

    count = n
    for a, b in es:
        a, b = find(a), find(b)
        if a != b:
            parent[a] = b
            count -= 1
    return count
""",
        """
def components(n, es):
    label = list(range(n))
    changed = True
    while changed:
        changed = False
        for a, b in es:
            low = min(label[a], label[b])
            if label[a] != low or label[b] != low:
                label[a] = label[b] = low
                changed = True
    return len(set(label))
""",
    ),
    "graphs/in_degree": (
        """
def in_degree(g):
    return [sum(xs.count(i) for xs in g) for i in range(len(g))]
""",
        """
from collections import Counter

def in_degree(g):
    counts = Counter(x for xs in g for x in xs)
    return [counts[i] for i in range(len(g))]
""",
        """
def in_degree(g):
    entering = {}
    for node, xs in enumerate(g):
        for x in xs:
            entering.setdefault(x, set()).add(node)
    return [len(entering.get(i, ())) for i in range(len(g))]
""",
        """
def in_degree(g):
    return [sum(i in xs for xs in g) for i in range(len(g))]
""",
    ),
    "graphs/cycle_length": (
        """
def cycle_length(xs, x):
    met = {}
    while x not in met:
        met[x] = len(met)
        x = xs[x]
    return len(met) - met[x]
""",
        """
def cycle_length(xs, x):
    slow, fast = xs[x], xs[xs[x]]
    while slow != fast:
        slow, fast = xs[slow], xs[xs[fast]]
    n, y = 1, xs[slow]
    while y != slow:
        n, y = n + 1, xs[y]
    return n
""",
        """
def cycle_length(xs, x):
    for _ in xs:
        x = xs[x]
    cycle = {x}
    while xs[x] not in cycle:
        x = xs[x]
        cycle.add(x)
    return len(cycle)
""",
        """
def cycle_length(xs, x):
    def go(x, path):
        if x in path:
            return len(path) - path[x]
        return go(xs[x], {**path, x: len(path)})
    return go(x, {})
""",
        """
def cycle_length(xs, x):
    power = length = 1
    tortoise, hare = x, xs[x]
    while tortoise != hare:
        if power == length:
            tortoise, power, length = hare, power * 2, 0
        hare = xs[hare]
        length += 1
    return length
""",
    ),
    "parsing/balanced": (
        """
def balanced(s):
    while '()' in s:
        s = s.replace('()', '')
    return s == ''
""",
        """
def balanced(s):
    stack = []
    for c in s:
        if c == '(':
            stack.append(c)
        elif not stack:
            return False
        else:
            stack.pop()
    return not stack
""",
        """
from itertools import accumulate

def balanced(s):
    heights = list(accumulate((1 if c == '(' else -1 for c in s), initial=0))
    return min(heights) == 0 == heights[-1]
""",
        """
def balanced(s):
    def group(i):
        while i < len(s) and s[i] == '(':
            i = group(i + 1)
            if i >= len(s) or s[i] != ')':
                return len(s) + 1
            i += 1
        return i
    return group(0) == len(s)
""",
    ),
    "parsing/read_int": (
        """
import re

def read_int(s):
    if not re.fullmatch('-?[0-9]+', s):
        raise ValueError(f'not a number: {s!r}')
    return int(s)
""",
        """
def read_int(s):
    digits = s[1:] if s.startswith('-') else s
    if not digits or any(c not in '0123456789' for c in digits):
        raise ValueError('bad number')
    value = 0
    for c in digits:
        value = 10 * value + ord(c) - 48
    return -value if s.startswith('-') else value
""",
        """
def read_int(s):
    sign, rest = (-1, s[1:]) if s[0] == '-' else (1, s)
    if not rest.isdigit():
        raise ValueError(s)
    return sign * int(rest)
""",
        """
from functools import reduce

def read_int(s):
    values = {c: v for v, c in enumerate('0123456789')}
    try:
        n = reduce(lambda n, c: n * 10 + values[c], s.removeprefix('-'), 0)
    except KeyError:
        raise ValueError(s) from None
    return -n if s[0] == '-' else n
""",
    ),
    "parsing/fields": (
        """
def fields(s, p):
    return s.split(p)
""",
        """
import re

def fields(s, p):
    return re.split(re.escape(p), s)
""",
        """
def fields(s, p):
    head, found, rest = s.partition(p)
    return [head] + fields(rest, p) if found else [head]
""",
        """
def fields(s, p):
    cuts = [-1] + [i for i, c in enumerate(s) if c == p] + [len(s)]
    return [s[a + 1:b] for a, b in zip(cuts, cuts[1:])]
""",
    ),
    "parsing/read_sum": (
        """
def read_sum(s):
    return eval(s)
""",
        """
import re

def read_sum(s):
    return sum(int(term) for term in re.findall('[+-]?[0-9]', s))
""",
        """
def read_sum(s):
    if len(s) == 1:
        return int(s)
    return read_sum(s[:-2]) + (int(s[-1]) if s[-2] == '+' else -int(s[-1]))
""",
        """
def read_sum(s):
    return sum(map(int, s.replace('-', '+-').split('+')))
""",
    ),
    "dynamic/ways": (
        """
def ways(xs, n):
    if n == 0:
        return 1
    if n < 0 or not xs:
        return 0
    return ways(xs, n - xs[-1]) + ways(xs[:-1], n)
""",
        """
from functools import lru_cache

def ways(xs, n):
    @lru_cache(maxsize=None)
    def go(i, left):
        if left == 0:
            return 1
        if i == len(xs):
            return 0
        return sum(go(i + 1, left - used) for used in range(0, left + 1, xs[i]))
    return go(0, n)
""",
        """
def ways(xs, n):
    rows = [[0] * (n + 1) for _ in range(len(xs) + 1)]
    for row in rows:
        row[0] = 1
    for i, x in enumerate(xs, 1):
        for j in range(1, n + 1):
            rows[i][j] = rows[i - 1][j] + (rows[i][j - x] if j >= x else 0)
    return rows[-1][n]
""",
        """
def ways(xs, n):
    sums = {0: 1}
    for x in xs:
        more = {}
        for total, count in sums.items():
            while total <= n:
                more[total] = more.get(total, 0) + count
                total += x
        sums = more
    return sums.get(n, 0)
""",
    ),
    "dynamic/max_sum": (
        """
def max_sum(xs):
    return max((sum(xs[i:j]) for i in range(len(xs)) for j in range(i, len(xs) + 1)), default=0)
""",
        """
from itertools import accumulate

def max_sum(xs):
    best = low = 0
    for total in accumulate(xs):
        best = max(best, total - low)
        low = min(low, total)
    return best
""",
        """
def max_sum(xs):
    if not xs:
        return 0
    if len(xs) == 1:
        return max(0, xs[0])
    half = len(xs) // 2

    def reach(part):
        best = total = 0
        for x in part:
            total += x
            best = max(best, total)
        return best

    return max(max_sum(xs[:half]), max_sum(xs[half:]), reach(xs[:half][::-1]) + reach(xs[half:]))
""",
        """
from functools import reduce

def max_sum(xs):
    def step(state, x):
        best, here = state
        here = max(0, here + x)
        return max(best, here), here
    return reduce(step, xs, (0, 0))[0]
""",
    ),
    "dynamic/longest_rise": (
        """
from bisect import bisect_left

def longest_rise(xs):
    tails = []
    for x in xs:
        at = bisect_left(tails, x)
        tails[at:at + 1] = [x]
    return len(tails)
""",
        """
from functools import lru_cache

def longest_rise(xs):
    @lru_cache(maxsize=None)
    def ending(i):
        return 1 + max((ending(j) for j in range(i) if xs[j] < xs[i]), default=0)
    return max(map(ending, range(len(xs))), default=0)
""",
        """
def longest_rise(xs):
    ys = sorted(set(xs))
    row = [0] * (len(ys) + 1)
    for x in xs:
        above = row[:]
        for j, y in enumerate(ys, 1):
            row[j] = above[j - 1] + 1 if x == y else max(above[j], row[j - 1])
    return row[-1]
""",
        """
def longest_rise(xs):
    best = {}
    for x in xs:
        best[x] = 1 + max((n for y, n in best.items() if y < x), default=0)
    return max(best.values(), default=0)
""",
    ),
    "dynamic/paths": (
        """
import math

def paths(n, m):
    return math.comb(n + m - 2, n - 1)
""",
        """
from functools import lru_cache

@lru_cache(maxsize=None)
def paths(n, m):
    return 1 if n == 1 or m == 1 else paths(n - 1, m) + paths(n, m - 1)
""",
        """
def paths(n, m):
    grid = [[1] * m for _ in range(n)]
    for i in range(1, n):
        for j in range(1, m):
            grid[i][j] = grid[i - 1][j] + grid[i][j - 1]
    return grid[n - 1][m - 1]
""",
        """
from itertools import accumulate

def paths(n, m):
    row = [1] * m
    for _ in range(n - 1):
        row = list(accumulate(row))
    return row[-1]
""",
        """
def paths(n, m):
    out = 1
    for k in range(1, n):
        out = out * (m - 1 + k) // k
    return out
""",
    ),
}
