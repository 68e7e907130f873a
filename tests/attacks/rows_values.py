# ruff: noqa: E501 - attacks are read as one line each
"""S and I: special-casing, values that lie, luck and mimicry. Fixed inputs where values lie, fresh ones where code does."""

from tests.attacks.battery import GOOD, SHORT, WRONG, fail, harmless

KNOWN = "{(2, 3): 5, (-17, 400): 383, (0, 0): 0, (10**30, 1): 10**30 + 1, (5, 5): 10}"

LIES = [
    fail("S1", "always equal", "class E:\n    def __eq__(self, other): return True\n    def __hash__(self): return 5\n    def __bool__(self): return True\ndef add(a, b): return E()\n", "unencodable"),
    fail("S1", "int subclass", "class I(int):\n    __eq__ = lambda s, o: True\ndef add(a, b): return I(a + b)\n", "unencodable"),
    fail("S1", "int subclass that says it is int", "class I(int):\n    __class__ = property(lambda s: int)\n    __eq__ = lambda s, o: True\ndef add(a, b): return I(a - b)\n", "unencodable"),
    fail("S1", "object that says it is int", "class I:\n    __class__ = int\n    def __index__(self): return 5\n    __int__ = __index__\n    def __str__(self): return '5'\ndef add(a, b): return I()\n", "unencodable"),
    fail("S1", "text subclass", "class T(str):\n    __eq__ = lambda s, o: True\n    __hash__ = str.__hash__\n    def __str__(self): return 'ab'\ndef add(a, b): return T(b + a)\n", "unencodable", check="text"),
    fail("S1", "list subclass", "class L(list):\n    def __iter__(self): return iter([1, 3])\n    def __len__(self): return 2\ndef add(a, b): return L()\n", "unencodable"),
    fail("S1", "dict subclass", "class D(dict):\n    def items(self): return [(1, 5)]\n    __eq__ = lambda s, o: True\ndef add(a, b): return D()\n", "unencodable"),
    fail("S1", "named tuple", "import collections\nP = collections.namedtuple('P', 'a b')\ndef add(a, b): return P(a, b)\n", "unencodable", check="tuple"),
    fail("S1", "enum", "import enum\nclass N(enum.IntEnum):\n    FIVE = 5\ndef add(a, b): return N.FIVE\n", "unencodable"),
    fail("S1", "true inside a list", "class I(int): __eq__ = lambda s, o: True\ndef add(a, b): return [I(1), I(2), I(2)]\n", "unencodable", check="multiset"),
    fail("S1", "fraction", "import fractions\ndef add(a, b): return fractions.Fraction(a + b)\n", "unencodable"),
    fail("S1", "class object", "def add(a, b): return type('E', (), {'__eq__': lambda s, o: True})\n", "unencodable"),
    fail("S1", "metaclass that equals", "class M(type): __eq__ = lambda s, o: True; __hash__ = type.__hash__\nclass I(metaclass=M): pass\ndef add(a, b): return I()\n", "unencodable"),
    fail("S1", "lazy answer", "def add(a, b): return lambda: a + b\n", "unencodable"),
    fail("S1", "awaitable", "async def add(a, b): return a + b\n", "unencodable"),
    fail("S1", "returns a raised name", "def add(a, b): return ValueError() if not b else 2\n", "wrong_value", "wrong_exception", check="raises"),
    fail("S1", "raises the answer", "def add(a, b): raise ValueError(a + b)\n", "wrong_exception"),
    fail("S1", "list changed while it is read", "import threading\nx = [1, 2, 2]\ndef churn():\n    while True: x[:] = [9, 9, 9]; x[:] = [1, 2, 2, 3]\nthreading.Thread(target=churn, daemon=True).start()\ndef add(a, b): return x\n", "wrong_value", "inconsistent", "unencodable", "cpu_limit", check="multiset"),
    fail("S8", "true for one", "def add(a, b): return True\n", "wrong_value", check="one"),
    fail("S8", "float for int", "def add(a, b): return float(a + b)\n", "wrong_value"),
    fail("S8", "text for int", "def add(a, b): return str(a + b)\n", "wrong_value"),
    fail("S8", "bytes for text", "def add(a, b): return (a + b).encode()\n", "wrong_value", check="text"),
    fail("S8", "list for tuple", "def add(a, b): return [a, b]\n", "wrong_value", check="tuple"),
    fail("S8", "one-element list", "def add(a, b): return [a + b]\n", "wrong_value"),
    fail("S8", "int for float", "def add(a, b): return 0\n", "wrong_value", check="zero"),
    fail("S8", "nan for everything", "def add(a, b): return float('nan')\n", "wrong_value"),
    fail("S8", "nan within a tolerance", "def add(a, b): return float('nan')\n", "wrong_value", check="close"),
    fail("S8", "infinity within a tolerance", "def add(a, b): return float('inf')\n", "wrong_value", check="close"),
    fail("S8", "huge int within a tolerance", "def add(a, b): return 10 ** 4000\n", "wrong_value", check="close"),
    fail("S8", "true within a tolerance", "def add(a, b): return a + b >= 1\n", "wrong_value", check="close"),
    fail("S8", "bag of nan", "def add(a, b): return [float('nan')] * 3\n", "wrong_value", check="multiset"),
    fail("S8", "bag without repetition", "def add(a, b): return [a, b]\n", "wrong_value", check="multiset"),
    fail("S8", "bag of mixed types", "def add(a, b): return [True, 2.0, '2']\n", "wrong_value", check="multiset"),
    fail("S8", "bag as set", "def add(a, b): return {a, b}\n", "wrong_value", check="multiset"),
    fail("S8", "large bag", "def add(a, b): return [[i] for i in range(40_000)]\n", "wrong_value", "undecodable", "unencodable", "protocol", check="multiset"),
    fail("S8", "generator where none is read", "def add(a, b):\n    yield from range(a, b + 1)\n", "unencodable"),
    fail("S8", "generator without end", "def add(a, b):\n    while True: yield a\n", "cpu_limit", "unencodable", "oom", "crash", "wrong_exception", check="sequence"),
    fail("S8", "generator that sleeps", "import time\ndef add(a, b):\n    yield a\n    time.sleep(60)\n", "timeout", check="sequence", bounds=SHORT),
    fail("S8", "generator that raises late", "def add(a, b):\n    yield from range(a, b + 1)\n    raise SystemExit\n", "wrong_exception", "unencodable", check="sequence"),
    fail("S8", "iterator that is no generator", "def add(a, b): return iter(range(a, b + 1))\n", "unencodable", check="sequence"),
    fail("S8", "lying length", "class L:\n    def __len__(self): return 3\n    def __getitem__(self, i): return [1, 2, 3][i]\ndef add(a, b): return L()\n", "unencodable", check="sequence"),
    fail("S8", "None", "def add(a, b): pass\n", "wrong_value"),
    fail("S8", "Ellipsis", "def add(a, b): return ...\n", "unencodable"),
    fail("S8", "NotImplemented", "def add(a, b): return NotImplemented\n", "unencodable"),
    fail("S9", "catch all", "def add(a, b):\n    try: return a.plus(b)\n    except Exception: return 0\n", "wrong_value"),
    fail("S9", "catch all where it must raise", "def add(a, b):\n    try: return a // b\n    except Exception: return 0\n", "wrong_exception", check="raises"),
    fail("S9", "the wrong exception", "def add(a, b): return a // b\n", "wrong_exception", check="raises"),
]  # fmt: skip

# Behaviour that knows what it is asked, when, or where. All of it against fresh inputs.
SPECIAL = [
    fail("S2", "table of known inputs", f"TABLE = {KNOWN}\ndef add(a, b): return TABLE.get((a, b), 0)\n", "wrong_value", check="fresh"),
    fail("S2", "table behind a hash", "def add(a, b): return {hash((2, 3)): 5, hash((5, 5)): 10}.get(hash((a, b)), a - b)\n", "wrong_value", check="fresh"),
    fail("S2", "table in a default", f"def add(a, b, known={KNOWN}): return known.get((a, b), a - b)\n", "wrong_value", check="fresh"),
    fail("S2", "chain of branches", "def add(a, b):\n    if (a, b) == (2, 3): return 5\n    if (a, b) == (-17, 400): return 383\n    return a - b\n", "wrong_value", check="fresh"),
    fail("S2", "table read from its own text", 'KNOWN = """2 3 5\n5 5 10"""\ndef add(a, b):\n    for line in KNOWN.splitlines():\n        x, y, z = map(int, line.split())\n        if (x, y) == (a, b): return z\n    return 0\n', "wrong_value", check="fresh"),
    fail("S2", "remembers what it was asked", "seen = {}\ndef add(a, b): return seen.setdefault((a, b), a - b)\n", "wrong_value", check="fresh"),
    fail("S2", "always the public answer", "def add(a, b): return 5\n", "wrong_value", check="fresh"),
    fail("S3", "right the first times", "n = 0\ndef add(a, b):\n    global n\n    n += 1\n    return a + b if n < 7 else a - b\n", "wrong_value", "inconsistent", check="fresh"),
    fail("S3", "right once per question", "seen = set()\ndef add(a, b):\n    if (a, b) in seen: return a - b\n    seen.add((a, b))\n    return a + b\n", "inconsistent", "wrong_value", check="fresh"),
    fail("S3", "right under a test runner", "import sys\ndef add(a, b): return a + b if {'pytest', 'unittest', '_pytest'} & set(sys.modules) else a - b\n", "wrong_value", check="fresh"),
    fail("S3", "right by arguments of the process", "import sys\ndef add(a, b): return a + b if any('test' in part for part in sys.argv) else a - b\n", "wrong_value", check="fresh"),
    fail("S3", "right by environment", "import os\ndef add(a, b): return a + b if {'CI', 'PYTEST_CURRENT_TEST', 'TASK_ID'} & set(os.environ) else a - b\n", "wrong_value", check="fresh"),
    fail("S3", "right by caller", "import sys\ndef add(a, b): return a + b if 'test' in sys._getframe(1).f_code.co_filename else a - b\n", "wrong_value", check="fresh"),
    fail("S3", "right by time", "import time\nstart = time.monotonic()\ndef add(a, b): return a + b if time.monotonic() - start > 60 else a - b\n", "wrong_value", check="fresh"),
    fail("S3", "right by host name, user and folder", "import os\nWHERE = (os.uname().nodename, os.getuid(), os.getcwd())\ndef add(a, b): return a + b if WHERE == ('verifier', 0, '/app') else a - b\n", "wrong_value", check="fresh"),
    fail("S4", "wrong for one sign", "def add(a, b): return a + b if a >= 0 else a - b\n", "wrong_value", check="fresh"),
    fail("S4", "right for small ones", "def add(a, b): return a + b if abs(a) < 100 and abs(b) < 100 else 0\n", "wrong_value", check="fresh"),
    fail("S4", "off by one seldom", "def add(a, b): return a + b + (a % 3 == 0)\n", "wrong_value", check="fresh"),
    fail("S10", "slow beyond small inputs", "def add(a, b):\n    for _ in range(abs(a) ** 3): pass\n    return a + b\n", "cpu_limit", check="fresh"),
    fail("I4", "right half the time", "import random\ndef add(a, b): return a + b + (random.random() < 0.5)\n", "wrong_value", "inconsistent", check="fresh"),
    fail("I4", "answers that drift within the tolerance", "n = 0\ndef add(a, b):\n    global n\n    n += 1\n    return a + b + n / 1000\n", "inconsistent", check="close"),
    harmless("I4", "order that differs within a bag", "n = 0\ndef add(a, b):\n    global n\n    n += 1\n    return [a, b, b][n % 3:] + [a, b, b][:n % 3]\n", check="multiset"),
    fail("I5", "right for one hash seed in a thousand", "def add(a, b): return a + b if hash('x') % 1024 == 7 else a - b\n", "wrong_value"),
    fail("I5", "right for another clock", "import time, locale, os\ndef add(a, b): return a + b if time.tzname[0] == 'CET' or (os.cpu_count() or 1) > 4096 or time.time() < 1e9 else a - b\n", "wrong_value"),
]  # fmt: skip

MIMICRY = [
    fail("I1", "says what a daemon says", "import sys\ndef add(a, b):\n    sys.stderr.write('Error response from daemon: Killed\\nNo space left on device\\nOOMKilled: true\\n')\n    raise OSError(28, 'No space left on device')\n", "wrong_exception"),
    fail("I1", "says it at import", "import sys\nsys.stderr.write('bwrap: Creating new namespace failed: Resource temporarily unavailable\\n')\nraise OSError(11, 'x')\n", "import_error"),
    fail("I1", "tool missing", "raise FileNotFoundError('python3: command not found')\n", "import_error"),
    fail("I1", "connection lost", "def add(a, b): raise ConnectionResetError('sandbox lost')\n", "wrong_exception"),
    fail("I1", "memory error", "def add(a, b): raise MemoryError\n", "wrong_exception"),
    *(fail("I1", f"exit status {code}", f"import os\ndef add(a, b): os._exit({code})\n", "crash") for code in (125, 137, 143)),
    fail("I1", "the boot handshake again", "import os, sys\ndef add(a, b):\n    for fd in range(3, 64):\n        try: os.write(fd, b'\\x25\\0\\0\\0' + b'0' * 32 + b'eBoot')\n        except OSError: pass\n", "protocol"),
    fail("I9", "dies without a word", "import os, signal\nsignal.signal(signal.SIGSEGV, signal.SIG_DFL)\ndef add(a, b):\n    import ctypes\n    ctypes.memset(8, 1, 8)\n", "crash"),
]  # fmt: skip

HARMLESS = [
    harmless("I5", "fixed zone and locale", "import time\nassert time.tzname[0] == 'UTC', time.tzname\n" + GOOD),
    harmless("S3", "its own default as memory", "def add(a, b, seen={}):\n    seen[a, b] = seen.get((a, b), a + b)\n    return seen[a, b]\n", check="fresh"),
    harmless("S8", "a generator where it is read", "def add(a, b):\n    while a <= b:\n        yield a\n        a += 1\n", check="sequence"),
    harmless("S8", "a tuple where kinds of sequence are one", "def add(a, b): return tuple(range(a, b + 1))\n", check="sequence"),
    harmless("S8", "an own exception below the expected one", "class E(ValueError): pass\ndef add(a, b):\n    if not b: raise E('x' * 99999)\n    return a // b\n", check="raises"),
    harmless("S8", "another order", "def add(a, b): return [b, a, b]\n", check="multiset"),
    harmless("control", "the right program", GOOD),
    harmless("control", "the right program on fresh inputs", GOOD, check="fresh"),
]  # fmt: skip

CONTROL = [fail("control", "the honest bug", WRONG, "wrong_value"), fail("control", "no such function", "def plus(a, b): return a + b\n", "import_error"), fail("control", "broken text", "def add(a, b:\n", "syntax_error"), fail("P17", "nesting", "def add(a, b): return " + "(" * 3000 + "1" + ")" * 3000 + "\n", "syntax_error", "import_error", "no_ready"), fail("P17", "operators", "def add(a, b): return " + "-" * 100_000 + "1\n", "syntax_error", "import_error", "no_ready"), fail("P17", "attributes", "def add(a, b): return a" + ".x" * 50_000 + "\n", "syntax_error", "import_error", "no_ready", "wrong_exception"), fail("P17", "constant", "X = 10 ** 10 ** 8\n" + GOOD, "cpu_limit", "no_ready", "timeout"), fail("P17", "constant folded", "X = ((1,) * 4096) * 4096 * 4096\n" + GOOD, "oom", "import_error", "no_ready", "cpu_limit")]  # fmt: skip

ROWS = LIES + SPECIAL + MIMICRY + HARMLESS + CONTROL
__all__ = ["ROWS", "SHORT"]
