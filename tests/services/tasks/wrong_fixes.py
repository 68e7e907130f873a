"""Wrong repairs that pass on small inputs: each with what it is wrong by and an input on which it shows.

None may pass a check run. The first twenty-one earned reward 1 when inputs were small."""

from typing import NamedTuple


class Wrong(NamedTuple):
    """`wrong_on` is the text of the arguments."""

    key: str
    what: str
    source: str
    wrong_on: str


WRONG = (
    Wrong(
        "numbers/digit_sum",
        "three digits only",
        """
def digit_sum(n):
    return n // 100 + n // 10 % 10 + n % 10
""",
        "(1234,)",
    ),
    Wrong(
        "numbers/is_prime",
        "table",
        """
def is_prime(n):
    return n in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29)
""",
        "(31,)",
    ),
    Wrong(
        "numbers/fib",
        "binet",
        """
def fib(n):
    return round(((1 + 5 ** 0.5) / 2) ** n / 5 ** 0.5)
""",
        "(75,)",
    ),
    Wrong(
        "numbers/to_base",
        "at most 7 digits",
        """
def to_base(n, b):
    out = []
    for i in range(7):
        out.append(n % b)
        n //= b
    while len(out) > 1 and out[-1] == 0:
        out.pop()
    return out[::-1]
""",
        "(128, 2)",
    ),
    Wrong(
        "strings/shift",
        "two wraps at most",
        """
def shift(s, n):
    a = 'abcdefghijklmnopqrstuvwxyz' * 2
    return ''.join(a[a.index(c) + n] for c in s)
""",
        "('z', 40)",
    ),
    Wrong(
        "strings/count_part",
        "first and last char only",
        """
def count_part(s, p):
    n = 0
    for i in range(len(s) - len(p) + 1):
        if s[i] == p[0] and s[i + len(p) - 1] == p[-1]:
            n += 1
    return n
""",
        "('aba', 'aaa')",
    ),
    Wrong(
        "strings/is_palindrome",
        "first four pairs only",
        """
def is_palindrome(s):
    return s[:4] == s[::-1][:4]
""",
        "('abcdxydcba',)",
    ),
    Wrong(
        "strings/common_prefix",
        "startswith s[0] loop",
        """
def common_prefix(s, p):
    i = min(len(s), len(p))
    while s[:i] != p[:i]:
        i -= 1
        if i < 0: break
    return s[:min(i, 8)]
""",
        "('abcdefghij', 'abcdefghij')",
    ),
    Wrong(
        "searching/lower_bound",
        "linear, at most 9",
        """
def lower_bound(xs, x):
    i = 0
    for k in range(9):
        if k < len(xs) and xs[k] < x:
            i = k + 1
    return i
""",
        "([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19], 15)",
    ),
    Wrong(
        "searching/first_index",
        "string search of one digit",
        """
def first_index(xs, x):
    return ''.join(map(str, xs)).index(str(x))
""",
        "([12, 3], 3)",
    ),
    Wrong(
        "sorting/insertion_sort",
        "sorted as text",
        """
def insertion_sort(xs):
    xs.sort(key=str)
    return xs
""",
        "([10, 9],)",
    ),
    Wrong(
        "sorting/counting_sort",
        "only six",
        """
def counting_sort(xs, n):
    return [d for d in range(6) for i in range(xs.count(d))]
""",
        "([6], 7)",
    ),
    Wrong(
        "sorting/insert",
        "sorted as text",
        """
def insert(xs, x):
    return sorted(xs + [x], key=str)
""",
        "([9], 10)",
    ),
    Wrong(
        "graphs/components",
        "label passes 2",
        """
def components(n, es):
    t = list(range(n))
    for r in range(2):
        for a, b in es:
            t[a] = t[b] = min(t[a], t[b])
    return len(set(t))
""",
        "(6, [(4, 5), (3, 4), (2, 3), (1, 2)])",
    ),
    Wrong(
        "graphs/components",
        "n minus distinct edges",
        """
def components(n, es):
    return n - len({(min(a, b), max(a, b)) for a, b in es if a != b})
""",
        "(3, [(0, 1), (1, 2), (2, 0)])",
    ),
    Wrong(
        "graphs/cycle_length",
        "six steps",
        """
def cycle_length(xs, x):
    for i in range(5):
        x = xs[x]
    y = xs[x]
    n = 1
    while y != x and n < 99:
        y = xs[y]
        n += 1
    return n
""",
        "([1, 2, 3, 4, 5, 6, 7, 7], 0)",
    ),
    Wrong(
        "parsing/read_int",
        "last character only",
        """
def read_int(s):
    if s[-1] == 'x':
        raise ValueError
    return int(s)
""",
        "('1_0',)",
    ),
    Wrong(
        "parsing/read_int",
        "minus anywhere",
        """
def read_int(s):
    t = s.replace('-', '')
    if not t.isdigit():
        raise ValueError(s)
    return -int(t) if '-' in s else int(t)
""",
        "('1-2',)",
    ),
    Wrong(
        "dynamic/ways",
        "coins to 5, n to 9 recursion capped",
        """
def ways(xs, n):
    def go(i, n, d):
        if n == 0:
            return 1
        if n < 0 or i == len(xs) or d > 12:
            return 0
        return go(i, n - xs[i], d + 1) + go(i + 1, n, d + 1)
    return go(0, n, 0)
""",
        "([1, 2], 20)",
    ),
    Wrong(
        "dynamic/max_sum",
        "window up to 7",
        """
def max_sum(xs):
    b = 0
    for i in range(len(xs)):
        for j in range(i, min(len(xs), i + 7)):
            b = max(b, sum(xs[i:j + 1]))
    return b
""",
        "([1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1],)",
    ),
    Wrong(
        "dynamic/longest_rise",
        "greedy with one skip",
        """
def longest_rise(xs):
    best = 0
    for i in range(len(xs)):
        for k in range(i + 1, len(xs) + 1):
            n, last = 1, xs[i]
            for x in xs[k:]:
                if x > last:
                    n, last = n + 1, x
            best = max(best, n)
    return best
""",
        "([1, 5, 2, 9, 3, 4],)",
    ),
    Wrong(
        "searching/lower_bound",
        "binary search of eight rounds",
        """
def lower_bound(xs, x):
    i = 0
    j = len(xs)
    for r in range(8):
        if i < j:
            k = (i + j) // 2
            if xs[k] < x:
                i = k + 1
            else:
                j = k
    return i
""",
        "(list(range(300)), 1)",
    ),
    Wrong(
        "searching/lower_bound",
        "compared as floats",
        """
def lower_bound(xs, x):
    return sum(float(y) < float(x) for y in xs)
""",
        "([2**60, 2**60 + 1], 2**60 + 1)",
    ),
    Wrong(
        "searching/lower_bound",
        "compared as text",
        """
def lower_bound(xs, x):
    return sum(str(y) < str(x) for y in xs)
""",
        "([9], 10)",
    ),
    Wrong(
        "searching/last_index",
        "the last hundred only",
        """
def last_index(xs, x):
    for i in range(len(xs) - 1, max(-1, len(xs) - 101), -1):
        if xs[i] == x:
            return i
    return -1
""",
        "([5] + [0] * 200, 5)",
    ),
    Wrong(
        "searching/last_index",
        "by identity",
        """
def last_index(xs, x):
    found = -1
    for i, y in enumerate(xs):
        if y is x or y == x and -5 <= x <= 256:
            found = i
    return found
""",
        '([10**6], int("1000000"))',
    ),
    Wrong(
        "searching/first_index",
        "by sign and last digit",
        """
def first_index(xs, x):
    for i, y in enumerate(xs):
        if y % 100 == x % 100 and (y < 0) == (x < 0):
            return i
    raise ValueError(x)
""",
        "([101, 1], 1)",
    ),
    Wrong(
        "searching/first_index",
        "a hundred elements at most",
        """
def first_index(xs, x):
    return xs[:100].index(x)
""",
        "(list(range(200)), 150)",
    ),
    Wrong(
        "searching/arg_max",
        "a maximum that starts at 0",
        """
def arg_max(xs):
    best, k = 0, 0
    for i, x in enumerate(xs):
        if x > best:
            best, k = x, i
    return k
""",
        "([-3, -1],)",
    ),
    Wrong(
        "searching/arg_max",
        "a maximum that starts at -10**9",
        """
def arg_max(xs):
    best, k = -10 ** 9, 0
    for i, x in enumerate(xs):
        if x > best:
            best, k = x, i
    return k
""",
        "([-10**12, -10**11],)",
    ),
    Wrong(
        "searching/arg_max",
        "the last of several",
        """
def arg_max(xs):
    return max(range(len(xs)), key=lambda i: (xs[i], i))
""",
        "([1, 1],)",
    ),
    Wrong(
        "sorting/insertion_sort",
        "ten rounds",
        """
def insertion_sort(xs):
    for r in range(10):
        for i in range(1, len(xs)):
            if xs[i - 1] > xs[i]:
                xs[i - 1], xs[i] = xs[i], xs[i - 1]
    return xs
""",
        "(list(range(20, 0, -1)),)",
    ),
    Wrong(
        "sorting/insertion_sort",
        "radix of three digits",
        """
def insertion_sort(xs):
    low = min(xs, default=0)
    for d in (1, 10, 100):
        xs.sort(key=lambda x: (x - low) // d % 10)
    return xs
""",
        "([5000, 1000],)",
    ),
    Wrong(
        "sorting/insertion_sort",
        "not in place",
        """
def insertion_sort(xs):
    return sorted(xs)
""",
        "([2, 1],)",
    ),
    Wrong(
        "sorting/insertion_sort",
        "by size without sign",
        """
def insertion_sort(xs):
    xs.sort(key=abs)
    return xs
""",
        "([-5, 1],)",
    ),
    Wrong(
        "sorting/merge",
        "a recursion of thirty",
        """
def merge(xs, ys, d=0):
    if not xs or not ys or d > 30:
        return xs + ys
    if xs[0] <= ys[0]:
        return [xs[0]] + merge(xs[1:], ys, d + 1)
    return [ys[0]] + merge(xs, ys[1:], d + 1)
""",
        "(list(range(0, 80, 2)), list(range(1, 80, 2)))",
    ),
    Wrong(
        "sorting/merge",
        "without equal ones",
        """
def merge(xs, ys):
    return sorted(set(xs) | set(ys))
""",
        "([1], [1])",
    ),
    Wrong(
        "sorting/merge",
        "as pairs",
        """
def merge(xs, ys):
    out = []
    for a, b in zip(xs, ys):
        out += sorted((a, b))
    return out + xs[len(ys):] + ys[len(xs):]
""",
        "([1, 2], [3, 4])",
    ),
    Wrong(
        "sorting/counting_sort",
        "ten buckets",
        """
def counting_sort(xs, n):
    t = [0] * 10
    for x in xs:
        t[x % 10] += 1
    return [x for x in range(10) for _ in range(t[x])]
""",
        "([11], 12)",
    ),
    Wrong(
        "sorting/counting_sort",
        "bytes",
        """
def counting_sort(xs, n):
    return list(sorted(x & 255 for x in xs))
""",
        "([256], 300)",
    ),
    Wrong(
        "sorting/is_sorted",
        "the first twenty",
        """
def is_sorted(xs):
    return all(a <= b for a, b in zip(xs[:20], xs[1:20]))
""",
        "(list(range(30)) + [0],)",
    ),
    Wrong(
        "sorting/is_sorted",
        "first and last",
        """
def is_sorted(xs):
    return not xs or xs[0] <= xs[-1]
""",
        "([1, 3, 2, 4],)",
    ),
    Wrong(
        "sorting/is_sorted",
        "strictly",
        """
def is_sorted(xs):
    return all(a < b for a, b in zip(xs, xs[1:]))
""",
        "([1, 1],)",
    ),
    Wrong(
        "sorting/is_sorted",
        "as floats",
        """
def is_sorted(xs):
    return all(float(a) <= float(b) for a, b in zip(xs, xs[1:]))
""",
        "([2**60 + 1, 2**60],)",
    ),
    Wrong(
        "sorting/insert",
        "sixteen steps",
        """
def insert(xs, x):
    i = 0
    while i < min(len(xs), 16) and xs[i] < x:
        i += 1
    return xs[:i] + [x] + xs[i:]
""",
        "(list(range(30)), 25)",
    ),
    Wrong(
        "strings/is_palindrome",
        "without case and marks",
        """
def is_palindrome(s):
    s = [c for c in s.lower() if c.isalnum()]
    return s == s[::-1]
""",
        '("Aa",)',
    ),
    Wrong(
        "strings/is_palindrome",
        "a recursion of fifty",
        """
def is_palindrome(s, d=0):
    return len(s) < 2 or d > 50 or (s[0] == s[-1] and is_palindrome(s[1:-1], d + 1))
""",
        '("x" * 60 + "ab" + "x" * 60,)',
    ),
    Wrong(
        "strings/is_palindrome",
        "ends and middle",
        """
def is_palindrome(s):
    k = len(s) // 2
    return s[:2] == s[::-1][:2] and s[k - 1:k] == s[len(s) - k:len(s) - k + 1]
""",
        '("abxccyba",)',
    ),
    Wrong(
        "strings/count_part",
        "not overlapping",
        """
def count_part(s, p):
    return s.count(p)
""",
        '("aaa", "aa")',
    ),
    Wrong(
        "strings/count_part",
        "as a pattern",
        """
import re
def count_part(s, p):
    try:
        return len(re.findall('(?=' + p + ')', s))
    except re.error:
        return 0
""",
        '("abc", ".")',
    ),
    Wrong(
        "strings/count_part",
        "the same letters",
        """
def count_part(s, p):
    k = len(p)
    return sum(sorted(s[i:i + k]) == sorted(p) for i in range(len(s) - k + 1))
""",
        '("ba", "ab")',
    ),
    Wrong(
        "strings/count_part",
        "nine at most",
        """
def count_part(s, p):
    return min(9, sum(s.startswith(p, i) for i in range(len(s))))
""",
        '("a" * 20, "a")',
    ),
    Wrong(
        "strings/common_prefix",
        "all equal places",
        """
def common_prefix(s, p):
    return ''.join(a for a, b in zip(s, p) if a == b)
""",
        '("axb", "ayb")',
    ),
    Wrong(
        "strings/common_prefix",
        "lower case",
        """
def common_prefix(s, p):
    i = 0
    while i < min(len(s), len(p)) and s[i].lower() == p[i].lower():
        i += 1
    return s[:i]
""",
        '("A", "a")',
    ),
    Wrong(
        "strings/squeeze",
        "pairs only",
        """
def squeeze(s):
    out, i = '', 0
    while i < len(s):
        out += s[i]
        i += 2 if s[i:i + 1] == s[i + 1:i + 2] else 1
    return out
""",
        '("aaa",)',
    ),
    Wrong(
        "strings/squeeze",
        "three letters",
        """
def squeeze(s):
    for c in 'abc':
        while c + c in s:
            s = s.replace(c + c, c)
    return s
""",
        '("dd",)',
    ),
    Wrong(
        "strings/squeeze",
        "word characters only",
        r"""
import re
def squeeze(s):
    return re.sub(r'(\w)\1+', r'\1', s)
""",
        '("  ",)',
    ),
    Wrong(
        "strings/shift",
        "forwards only",
        """
def shift(s, n):
    return ''.join(chr((ord(c) - 97 + abs(n)) % 26 + 97) for c in s)
""",
        '("a", -1)',
    ),
    Wrong(
        "strings/shift",
        "a hundred steps at most",
        """
def shift(s, n):
    return ''.join(chr((ord(c) - 97 + min(n, 100)) % 26 + 97) for c in s)
""",
        '("a", 200)',
    ),
    Wrong(
        "numbers/gcd",
        "a hundred candidates",
        """
def gcd(a, b):
    if a == 0 or b == 0:
        return a + b
    return max(d for d in range(1, 101) if a % d == 0 and b % d == 0)
""",
        "(202, 202)",
    ),
    Wrong(
        "numbers/gcd",
        "twenty rounds",
        """
def gcd(a, b):
    for r in range(20):
        if b:
            a, b = b, a % b
    return a
""",
        "(27777890035288, 17167680177565)",
    ),
    Wrong(
        "numbers/gcd",
        "through floats",
        """
def gcd(a, b):
    a, b = float(a), float(b)
    while b > 0:
        a, b = b, a % b
    return int(a)
""",
        "(2**60 + 1, 0)",
    ),
    Wrong(
        "numbers/digit_sum",
        "of the digital root kind",
        """
def digit_sum(n):
    return sum(int(c) for c in str(n)[:9])
""",
        "(1111111111,)",
    ),
    Wrong(
        "numbers/digit_sum",
        "through logarithms",
        """
def digit_sum(n):
    return sum(int(n / 10 ** k) % 10 for k in range(len(str(n))))
""",
        "(10**17 + 3,)",
    ),
    Wrong(
        "numbers/is_prime",
        "small divisors",
        """
def is_prime(n):
    return n > 1 and all(n % d for d in (2, 3, 5, 7, 11, 13) if d < n)
""",
        "(289,)",
    ),
    Wrong(
        "numbers/is_prime",
        "Fermat to base two",
        """
def is_prime(n):
    return n == 2 or n > 2 and n % 2 == 1 and pow(2, n - 1, n) == 1
""",
        "(341,)",
    ),
    Wrong(
        "numbers/is_prime",
        "6k +- 1",
        """
def is_prime(n):
    return n in (2, 3) or n > 4 and n % 6 in (1, 5) and n % 5 > 0 or n == 5
""",
        "(49,)",
    ),
    Wrong(
        "numbers/to_base",
        "by logarithm",
        """
import math
def to_base(n, b):
    if n == 0:
        return [0]
    k = int(math.log(n) / math.log(b))
    return [n // b ** i % b for i in range(k, -1, -1)]
""",
        "(1000, 10)",
    ),
    Wrong(
        "numbers/to_base",
        "decimal digits",
        """
def to_base(n, b):
    out = ''
    while True:
        out = str(n % b) + out
        n //= b
        if n == 0:
            return [int(c) for c in out]
""",
        "(10, 11)",
    ),
    Wrong(
        "numbers/to_base",
        "a recursion of twenty",
        """
def to_base(n, b, d=0):
    return [n % b] if n < b or d == 20 else to_base(n // b, b, d + 1) + [n % b]
""",
        "(2**30, 2)",
    ),
    Wrong(
        "numbers/fib",
        "a table",
        """
def fib(n):
    t = [0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233, 377, 610, 987]
    return t[min(n, 16)]
""",
        "(17,)",
    ),
    Wrong(
        "numbers/fib",
        "32 bits",
        """
def fib(n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, (a + b) & 0xffffffff
    return a
""",
        "(60,)",
    ),
    Wrong(
        "graphs/reach",
        "depth first",
        """
def reach(g, x):
    out = []
    def go(x):
        out.append(x)
        for y in g[x]:
            if y not in out:
                go(y)
    go(x)
    return out
""",
        "([[1, 2], [3], [], []], 0)",
    ),
    Wrong(
        "graphs/reach",
        "four rounds",
        """
def reach(g, x):
    out = [x]
    level = [x]
    for r in range(4):
        new = []
        for x in level:
            for y in g[x]:
                if y not in out:
                    out.append(y)
                    new.append(y)
        level = new
    return out
""",
        "([[1], [2], [3], [4], [5], []], 0)",
    ),
    Wrong(
        "graphs/reach",
        "in order of numbers",
        """
def reach(g, x):
    out = [x]
    for x in out:
        for y in sorted(g[x]):
            if y not in out:
                out.append(y)
    return out
""",
        "([[2, 1], [], []], 0)",
    ),
    Wrong(
        "graphs/components",
        "edges in one direction",
        """
def components(n, es):
    t = list(range(n))
    for a, b in es:
        t[b] = t[a]
    return len(set(t))
""",
        "(4, [(2, 3), (1, 2), (0, 1)])",
    ),
    Wrong(
        "graphs/components",
        "four label passes",
        """
def components(n, es):
    t = list(range(n))
    for r in range(4):
        for a, b in es:
            t[a] = t[b] = min(t[a], t[b])
    return len(set(t))
""",
        "(8, [(6, 7), (5, 6), (4, 5), (3, 4), (2, 3), (1, 2), (0, 1)])",
    ),
    Wrong(
        "graphs/in_degree",
        "nine at most",
        """
def in_degree(g):
    t = [0] * len(g)
    for xs in g:
        for x in xs:
            t[x] = min(9, t[x] + 1)
    return t
""",
        "([[0]] + [[0] for _ in range(12)],)",
    ),
    Wrong(
        "graphs/in_degree",
        "without loops",
        """
def in_degree(g):
    return [sum(i in xs for k, xs in enumerate(g) if k != i) for i in range(len(g))]
""",
        "([[0]],)",
    ),
    Wrong(
        "graphs/cycle_length",
        "a cycle of sixty-four at most",
        """
def cycle_length(xs, x):
    for _ in range(len(xs)):
        x = xs[x]
    y, n = xs[x], 1
    while y != x and n < 64:
        y, n = xs[y], n + 1
    return n
""",
        "([(x + 1) % 80 for x in range(80)], 0)",
    ),
    Wrong(
        "graphs/cycle_length",
        "a tail of thirty-two at most",
        """
def cycle_length(xs, x):
    for _ in range(32):
        x = xs[x]
    y, n = xs[x], 1
    while y != x and n < 999:
        y, n = xs[y], n + 1
    return n
""",
        "([*range(1, 60), 59], 0)",
    ),
    Wrong(
        "parsing/balanced",
        "as many of both",
        """
def balanced(s):
    return s.count('(') == s.count(')') and not s.startswith(')') and not s.endswith('(')
""",
        '("())(()",)',
    ),
    Wrong(
        "parsing/balanced",
        "six rounds",
        """
def balanced(s):
    for r in range(6):
        s = s.replace('()', '')
    return s == ''
""",
        '("((((((()))))))",)',
    ),
    Wrong(
        "parsing/read_int",
        "what int takes",
        """
def read_int(s):
    return int(s)
""",
        '("+1",)',
    ),
    Wrong(
        "parsing/read_int",
        "a float",
        """
def read_int(s):
    if not s.lstrip('-').isdigit():
        raise ValueError(s)
    return int(float(s))
""",
        '("12345678901234567",)',
    ),
    Wrong(
        "parsing/read_int",
        "stripped",
        """
def read_int(s):
    s = s.strip()
    if not s[1:].isdigit() and not s.isdigit():
        raise ValueError(s)
    return int(s)
""",
        '(" 1",)',
    ),
    Wrong(
        "parsing/fields",
        "commas",
        """
def fields(s, p):
    return s.split(',')
""",
        '("a;b", ";")',
    ),
    Wrong(
        "parsing/fields",
        "blanks",
        """
def fields(s, p):
    return s.split(p) if p != ' ' else s.split() or ['']
""",
        '("a  b", " ")',
    ),
    Wrong(
        "parsing/fields",
        "a pattern",
        r"""
import re
def fields(s, p):
    return re.split(p, s) if p not in '*+?()[{\\' else s.split(p)
""",
        '("a.b", ".")',
    ),
    Wrong(
        "parsing/fields",
        "a table letter",
        """
import csv
def fields(s, p):
    return next(csv.reader([s], delimiter=p)) if s else ['']
""",
        '(\'"a,b",c\', ",")',
    ),
    Wrong(
        "parsing/read_sum",
        "four terms",
        """
def read_sum(s):
    return sum(int(x) for x in [s[0], s[1:3], s[3:5], s[5:7]] if x)
""",
        '("1+1+1+1+1",)',
    ),
    Wrong(
        "parsing/read_sum",
        "nothing below zero",
        """
def read_sum(s):
    return max(0, eval(s))
""",
        '("1-2",)',
    ),
    Wrong(
        "dynamic/ways",
        "each coin once",
        """
def ways(xs, n):
    t = [1] + [0] * n
    for x in xs:
        for i in range(n, x - 1, -1):
            t[i] += t[i - x]
    return t[n]
""",
        "([1], 2)",
    ),
    Wrong(
        "dynamic/ways",
        "coins of one digit",
        """
def ways(xs, n):
    t = [1] + [0] * n
    for x in xs:
        for i in range(x, n + 1):
            t[i] += t[i - x] if x < 10 else 0
    return t[n]
""",
        "([10], 10)",
    ),
    Wrong(
        "dynamic/ways",
        "in every order",
        """
def ways(xs, n):
    t = [1] + [0] * n
    for i in range(1, n + 1):
        t[i] = sum(t[i - x] for x in xs if x <= i)
    return t[n]
""",
        "([1, 2], 3)",
    ),
    Wrong(
        "dynamic/max_sum",
        "a window of a hundred",
        """
def max_sum(xs):
    b = 0
    for i in range(len(xs)):
        t = 0
        for x in xs[i:i + 100]:
            t += x
            b = max(b, t)
    return b
""",
        "([1] * 150,)",
    ),
    Wrong(
        "dynamic/max_sum",
        "the largest one",
        """
def max_sum(xs):
    return max([0, sum(xs)] + xs + [a + b for a, b in zip(xs, xs[1:])])
""",
        "([-1, 1, 1, 1, -1],)",
    ),
    Wrong(
        "dynamic/longest_rise",
        "side by side",
        """
def longest_rise(xs):
    best = n = 0
    for i, x in enumerate(xs):
        n = n + 1 if i and x > xs[i - 1] else 1
        best = max(best, n)
    return best
""",
        "([1, 5, 2, 3],)",
    ),
    Wrong(
        "dynamic/longest_rise",
        "not strictly",
        """
from bisect import bisect_right
def longest_rise(xs):
    t = []
    for x in xs:
        i = bisect_right(t, x)
        t[i:i + 1] = [x]
    return len(t)
""",
        "([1, 1],)",
    ),
    Wrong(
        "dynamic/longest_rise",
        "ten at most",
        """
def longest_rise(xs):
    t = [float('inf')] * 10
    for x in xs:
        for i in range(10):
            if t[i] >= x:
                t[i] = x
                break
    return sum(y != float('inf') for y in t)
""",
        "(list(range(12)),)",
    ),
    Wrong(
        "dynamic/paths",
        "factorials as floats",
        """
import math
def paths(n, m):
    return round(math.gamma(n + m - 1) / math.gamma(n) / math.gamma(m))
""",
        "(40, 40)",
    ),
    Wrong(
        "dynamic/paths",
        "three rows",
        """
def paths(n, m):
    n, m = sorted((n, m))
    return 1 if n == 1 else m if n == 2 else m * (m + 1) // 2
""",
        "(4, 4)",
    ),
    Wrong(
        "dynamic/paths",
        "a table",
        """
def paths(n, m):
    t = [[1, 1, 1, 1, 1], [1, 2, 3, 4, 5], [1, 3, 6, 10, 15], [1, 4, 10, 20, 35], [1, 5, 15, 35, 70]]
    return t[min(n, 5) - 1][min(m, 5) - 1]
""",
        "(6, 6)",
    ),
)
