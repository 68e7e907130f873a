# ruff: noqa: E501 - attacks are read as one line each
"""The executable rows of the attack list: each asserts the verdict and to whom and what it was attributed."""

import random
import textwrap

import pytest

from services.runtime.jail.launcher import JailHost
from services.runtime.jail.limits import MIB, Limits
from services.tasks import values
from services.tasks.fixture import CheckSet, Example
from services.verifier import trial
from services.verifier.attribution import attribute
from tests.attacks.battery import ROOMY_S, roomy
from tests.services.jails import ADD_BUG, ADD_FIX, add_check

LIMITS = Limits(memory_bytes=96 * MIB, processes=12, cpu_s=1)
BOUNDS = trial.Bounds(LIMITS, call_cpu_s=0.1, wall_s=10.0)
SHORT = trial.Bounds(LIMITS, call_cpu_s=0.1, wall_s=1.0)  # for what sleeps, which no load of this machine can excuse


def verdict(
    host: JailHost, source: str, check: CheckSet | None = None, seed: int = 1, bounds: trial.Bounds = BOUNDS
) -> tuple[str, str]:
    facts = trial.run(host, {"solution.py": textwrap.dedent(source)}, check or add_check(), seed, bounds)
    return attribute(facts)


ATTACKS = {
    "honest bug": (ADD_BUG, "wrong_value"),
    "S1 always equal": (
        """
        class Equal:
            def __eq__(self, other): return True
            def __hash__(self): return 5
        def add(a, b): return Equal()
        """, "unencodable"),
    "S1 int subclass": ("class I(int):\n    __eq__ = lambda s, o: True\ndef add(a, b): return I(a + b)\n", "unencodable"),
    "S8 bool for int": ("def add(a, b): return (a + b) or False\n", "wrong_value"),
    "S8 float for int": ("def add(a, b): return float(a + b)\n", "wrong_value"),
    "S8 text for int": ("def add(a, b): return str(a + b)\n", "wrong_value"),
    "S8 nan": ("def add(a, b): return float('nan')\n", "wrong_value"),
    "R1 _exit at import": ("import os\nos._exit(0)\n", "no_ready"),
    "R1 _exit in call": ("import os\ndef add(a, b): os._exit(0)\n", "crash"),
    "R2 sys.exit in call": ("import sys\ndef add(a, b): sys.exit(0)\n", "wrong_exception"),
    "R2 sys.exit at import": ("import sys\nsys.exit(0)\n", "import_error"),
    "R2 raise skip": ("import unittest\ndef add(a, b): raise unittest.SkipTest('x')\n", "wrong_exception"),
    "R4 print passed": ("def add(a, b):\n    print('2 passed', flush=True)\n    return a - b\n", "wrong_value"),
    "I1 infra words": (
        "import sys\ndef add(a, b):\n    sys.stderr.write('Error response from daemon: Killed: No space left')\n    raise OSError(28)\n",
        "wrong_exception"),
    "R5 forge every descriptor": (
        """
        import os
        for fd in range(3, 40):
            try: os.write(fd, (45).to_bytes(4, 'little') + b'0' * 32 + b'r{"i":"5"}')
            except OSError: pass
        def add(a, b): return a - b
        """, "protocol"),
    "R5 forge in call": (
        """
        import os
        def add(a, b):
            for fd in range(3, 40):
                try: os.write(fd, b'\\x2d\\0\\0\\0' + b'f' * 32 + b'r{"i":"5"}   ')
                except OSError: pass
            return a - b
        """, "protocol"),
    "R5 close every descriptor": ("import os\nos.closerange(0, 64)\ndef add(a, b): return a + b\n", "no_ready"),
    "R5 rewrite the loader": (
        """
        import sys
        main = sys.modules['__main__']
        main.reply = lambda fd, ident, kind, text='': main.write_all(fd, b'garbage-garbage-garbage-garbage-garbage')
        def add(a, b): return a - b
        """, "protocol"),
    "R7 giant int": ("def add(a, b): return 10 ** 5000\n", "unencodable"),
    "R7 deep list": ("def add(a, b):\n    x = []\n    for _ in range(200): x = [x]\n    return x\n", "unencodable"),
    "R7 cycle": ("def add(a, b):\n    x = []\n    x.append(x)\n    return x\n", "unencodable"),
    "R7 lone surrogate": ("def add(a, b): return '\\ud800'\n", "unencodable"),
    "R7 wide": ("def add(a, b): return [0] * 200_000\n", "unencodable"),
    "R11 answers at exit": ("import atexit, os\natexit.register(lambda: os.write(4, b'x' * 99))\ndef add(a, b): return a - b\n", "wrong_value"),
    "S9 catch all": ("def add(a, b):\n    try: return a.plus(b)\n    except Exception: return 0\n", "wrong_value"),
    "X1 memory bomb": ("def add(a, b): return len(b'x' * (400 << 20))\n", "oom"),
    "X1 memory bomb in a child": (
        """
        import os
        def add(a, b):
            if os.fork() == 0:
                bytearray(400 << 20)
                os._exit(0)
            os.wait()
            return a + b
        """, "oom"),
    "X2 fork bomb": (
        """
        import os
        def add(a, b):
            try:
                while True:
                    if os.fork() == 0:
                        import time; time.sleep(30)
            except OSError: pass
            return a + b
        """, "processes"),
    "X2 thread bomb": (
        """
        import threading, time
        def add(a, b):
            try:
                for _ in range(64): threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
            except RuntimeError: pass
            return a + b
        """, "processes"),
    "X3 spin": ("def add(a, b):\n    while True: pass\n", "cpu_limit"),
    "X3 spin at import": ("while True: pass\n", "cpu_limit"),
    "X3 spin that swallows": ("def add(a, b):\n    while True:\n        try:\n            while True: pass\n        except BaseException: pass\n", "cpu_limit"),
    "X3 spin in C with the timer off": (
        "import signal\nsignal.signal(signal.SIGPROF, signal.SIG_IGN)\ndef add(a, b):\n    while True: sum(range(10 ** 7))\n", "cpu_limit"),
    "X3 sleep": ("import time\ndef add(a, b):\n    time.sleep(60)\n", "timeout"),
    "X4 log flood": ("def add(a, b):\n    for _ in range(99): print('x' * 4096)\n    return a + b\n", "output_flood"),
    "X4 reply flood": ("def add(a, b): return 'x' * (2 << 20)\n", "protocol"),
    "X5 disk fill": (
        """
        def add(a, b):
            for n in range(99):
                with open(f'/tmp/f{n}', 'wb') as f: f.write(b'x' * (1 << 20))
            return a + b
        """, "wrong_exception"),
    "X6 descriptors": ("import os\ndef add(a, b):\n    return [os.pipe() for _ in range(99)] and a + b\n", "wrong_exception"),
    "H6 network": ("import socket\nhere = socket.socket()\ndef add(a, b): return a + b\n", "import_error"),
    "P17 nesting": ("def add(a, b): return " + "(" * 3000 + "1" + ")" * 3000 + "\n", "import_error"),
    "syntax": ("def add(a, b:\n", "syntax_error"),
    "no such function": ("def plus(a, b): return a + b\n", "import_error"),
    "recursion": ("def add(a, b): return add(a, b)\n", "wrong_exception"),
    "stateful": ("seen = []\ndef add(a, b):\n    seen.append(1)\n    return a + b if len(seen) < 3 else 0\n", "wrong_value"),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTACKS)
def test_attacks_fail_and_say_why(host: JailHost, name: str) -> None:
    source, cause = ATTACKS[name]
    if host.layout.version == 0 and cause in ("oom", "processes"):
        pytest.skip("no writable control groups here: memory and processes are bounded but not attributed")
    allowed = {cause}
    if name == "P17 nesting":
        allowed |= {"no_ready", "syntax_error"}  # depends on the interpreter: too many brackets, or its stack
    outcome, found = verdict(host, source, bounds=SHORT if name in ("X3 sleep",) else BOUNDS)
    if found == "cpu_limit" and cause != found:  # a slow processor never came to what the row is about
        outcome, found = verdict(host, source, add_check(call_cpu_s=ROOMY_S), bounds=roomy(BOUNDS))
    assert (outcome, found in allowed) == ("fail", True), found


NO_EFFECT = {
    "control": ADD_FIX,
    "B1 empty environment": "import os\nassert set(os.environ) <= {'LC_CTYPE', 'PWD'}\n" + ADD_FIX,
    "B2 isolated path": "import sys\nassert '' not in sys.path and sys.flags.safe_path and sys.flags.no_user_site\n" + ADD_FIX,
    "B5 import hooks": "import sys, builtins\nsys.meta_path.clear()\nbuiltins.print = None\n" + ADD_FIX,
    "R4 prints with the right answer": "print('FAILED')\n" + ADD_FIX,
    "H1 nothing hidden on disk": "import os\nassert not [d for d, _, _ in os.walk('/') if 'rollstream' in d]\n" + ADD_FIX,
    "H4 no proc": "import os\nassert not os.path.exists('/proc/1')\n" + ADD_FIX,
    "R13 no tools": "import os\nassert not os.path.exists('/bin/sh') and not os.path.exists('/usr/bin/env')\n" + ADD_FIX,
    "E1 daemon that lets go": (
        "import os\nif os.fork() == 0:\n    os.setsid()\n    os.closerange(0, 64)\n    import time\n    time.sleep(60)\n" + ADD_FIX),
    "E1 child that keeps the pipes": (
        "import os\ndef add(a, b):\n    if os.fork() == 0:\n        import time\n        time.sleep(60)\n    return a + b\n"),
    "E6 no set-user-id program": (
        "import os\nfor d, _, fs in os.walk('/'):\n    for f in fs:\n        assert not os.lstat(os.path.join(d, f)).st_mode & 0o6000\n" + ADD_FIX),
    "killed handler": "import signal\nsignal.signal(signal.SIGTERM, lambda *a: None)\n" + ADD_FIX,
}  # fmt: skip


@pytest.mark.parametrize("name", NO_EFFECT)
def test_what_has_no_effect_is_judged_on_its_merits(host: JailHost, name: str) -> None:
    assert verdict(host, NO_EFFECT[name]) == ("pass", "ok")


TABLE = "TABLE = {(2, 3): 5, (-17, 400): 383, (0, 0): 0, (10**30, 1): 10**30 + 1, (5, 5): 10}\ndef add(a, b): return TABLE.get((a, b), 0)\n"


class FreshAdd:
    """E3 for `add`: the same questions as a check set gets, drawn anew for each run."""

    entry, comparator, call_cpu_s, evidence = "add", "exact", 0.1, "E3"
    objects, hidden_tests = (), None

    def inputs(self, rng: random.Random) -> list[tuple[int, int]]:
        return [(rng.randrange(-99, 99), rng.randrange(-99, 99)) for _ in range(20)]

    expected = staticmethod(lambda args: add_check().fixed_cases[0].outcome().__class__(value=sum(args)))
    agrees = staticmethod(lambda expected, got, args: add_check().agrees(expected, got))


def test_a_table_of_known_cases_passes_fixed_inputs_and_fails_fresh_ones(host: JailHost) -> None:
    assert verdict(host, TABLE) == ("pass", "ok")  # why E2 with public cases is weak, stated where it shows
    assert verdict(host, TABLE, FreshAdd()) == ("fail", "wrong_value")  # type: ignore[arg-type]  # same duck as CheckSet
    assert verdict(host, ADD_FIX, FreshAdd()) == ("pass", "ok")  # type: ignore[arg-type]  # same duck as CheckSet


def test_i4_a_lucky_candidate_is_caught_by_repeats_or_trials(host: JailHost) -> None:
    source = "import random\ndef add(a, b): return a + b + (random.random() < 0.5)\n"
    outcomes = {verdict(host, source, seed=seed)[0] for seed in range(3)}
    assert "fail" in outcomes


def test_repeated_questions_must_get_the_same_answer(host: JailHost) -> None:
    check = add_check(comparator="abs:0.5", fixed_cases=tuple(Example((float(n), 1.0), n + 1.0) for n in range(20)))
    source = "n = 0\ndef add(a, b):\n    global n\n    n += 1\n    return a + b + n / 1000\n"
    assert verdict(host, source, check) == ("fail", "inconsistent")


def test_exceptions_and_arguments_are_part_of_the_answer(host: JailHost) -> None:
    case = (Example((1, 0), values.ExceptionName("ZeroDivisionError")), Example((4, 2), 2))
    check = add_check(fixed_cases=case)
    assert verdict(host, "def add(a, b): return a // b\n", check) == ("pass", "ok")
    assert verdict(host, "def add(a, b): return a // b if b else 0\n", check) == ("fail", "wrong_exception")
    own = "class E(ZeroDivisionError): pass\ndef add(a, b):\n    if not b: raise E\n    return a // b\n"
    assert verdict(host, own, check) == ("pass", "ok")


def test_one_run_leaves_nothing_for_the_next(host: JailHost) -> None:
    writes = "open('/tmp/mark', 'w').close()\n" + ADD_FIX
    looks = "import os\nassert not os.path.exists('/tmp/mark')\n" + ADD_FIX
    for source in (writes, looks):
        assert verdict(host, source) == ("pass", "ok")
    assert host.retired == 0


def test_generators_are_read_out_only_where_the_comparator_says_so(host: JailHost) -> None:
    cases = (Example((1, 3), [1, 2, 3]), Example((2, 2), [2]))
    source = "def add(a, b):\n    while a <= b:\n        yield a\n        a += 1\n"
    assert verdict(host, source, add_check(fixed_cases=cases, comparator="sequence")) == ("pass", "ok")
    assert verdict(host, source, add_check(fixed_cases=cases)) == ("fail", "unencodable")
    endless = "def add(a, b):\n    while True: yield a\n"
    assert verdict(host, endless, add_check(fixed_cases=cases, comparator="sequence"))[0] == "fail"


def test_an_object_that_fights_its_encoding_is_no_exception_answer(host: JailHost) -> None:
    check = add_check(fixed_cases=(Example((1, 0), values.ExceptionName("ValueError")),))
    source = "def add(a, b): return 10 ** 4301\n"
    assert verdict(host, source, check) == ("fail", "unencodable")
