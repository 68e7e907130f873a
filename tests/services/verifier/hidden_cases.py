"""What the tests of hidden pytest files share: small check sets, and candidates that try to pass without being right.

The candidates are the battery of thirteen attacks on `calc.add`; each answers wrongly when its trick does nothing.
"""

from __future__ import annotations

from services.runtime.jail.limits import MIB, Limits
from services.tasks.fixture import CheckSet, HiddenTests
from services.verifier.trial import Bounds

BOUNDS = Bounds(Limits(128 * MIB, 12, cpu_s=3), 0.5, 20.0)

CALC_TESTS = """
from calc import add

def test_small():
    assert add(2, 3) == 5

def test_mixed():
    assert add(-17, 400) == 383
"""
CALC_IDS = ("test_calc.py::test_small", "test_calc.py::test_mixed")


def check_of(tests: HiddenTests, **changes: object) -> CheckSet:
    """A check set that judges by hidden tests alone."""
    fields = {
        "task_id": "tiny/hidden",
        "problem": "tiny/hidden",
        "entry": f"{tests.module}:add",
        "comparator": "exact",
        "evidence": "E1" if tests.mode == "inside" else "E2",
        "cases_per_trial": 1,
        "fixed_cases": (),
        "call_cpu_s": 0.5,
        "known_bad": (),
        "hidden_tests": tests,
    }
    return CheckSet(**{**fields, **changes})  # type: ignore[arg-type]  # tests name fields of many types


def calc_check(mode: str) -> CheckSet:
    """Two fixed calls of `calc.add`."""
    return check_of(HiddenTests({"test_calc.py": CALC_TESTS}, "calc", mode, CALC_IDS, {"functions": ["add"]}))


def one_file(
    source: str, *names: str, mode: str = "outside", api: dict | None = None, module: str = "calc"
) -> CheckSet:
    """A check set of one file `test_one.py` with the expected tests `names`."""
    ids = tuple(f"test_one.py::{name}" for name in names)
    return check_of(HiddenTests({"test_one.py": source}, module, mode, ids, api or {"functions": ["add"]}))


WRONG = "def add(a, b):\n    return a - b\n"
RIGHT = "def add(a, b):\n    return a + b\n"

ATTACKS = {
    "always equal": """
class Always(int):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    __hash__ = int.__hash__
def add(a, b): return Always(a - b)
""",
    "exit at import": "import os\nos._exit(0)\n",
    "exit in a call": "import os\ndef add(a, b): os._exit(0)\n",
    "sys.exit in a call": "import sys\ndef add(a, b): sys.exit(0)\n",
    "patch TestReport": """
def add(a, b):
    try:
        from _pytest import reports
        def forged(item, call, made=reports.TestReport.from_item_and_call):
            report = made(item, call)
            report.outcome, report.longrepr = 'passed', None
            return report
        reports.TestReport.from_item_and_call = staticmethod(forged)
    except Exception:
        pass
    return a - b
""",
    "swap code through gc": """
import gc, types
def nothing(*args, **named): return None
def add(a, b):
    for found in gc.get_objects():
        if isinstance(found, types.FunctionType) and found.__name__.startswith('test_'):
            try:
                found.__code__ = nothing.__code__
            except Exception:
                pass
    return a - b
""",
    "walk frames": """
import dis, sys
def add(a, b):
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name.startswith('test_'):
            wanted = [one.argval for one in dis.get_instructions(frame.f_code)
                      if one.opname == 'LOAD_CONST' and type(one.argval) is int and one.argval not in (a, b)]
            for value in wanted[-1:]:
                return value
        frame = frame.f_back
    return a - b
""",
    "read the test file": """
import os, re
def add(a, b):
    for folder, _, names in os.walk('/tmp'):
        for name in names:
            if name.startswith('test_'):
                text = open(os.path.join(folder, name)).read()
                found = re.search(r'add\\(%d, %d\\) == (-?[0-9]+)' % (a, b), text)
                if found:
                    return int(found.group(1))
    return a - b
""",
    "forge records on every descriptor": """
import gc, os, re, sys
def real(folder, test):  # an attacker who knows what is right, but does not say so
    for top, _, names in os.walk('/tmp/tree'):
        if os.path.basename(top) == folder:
            text = open(os.path.join(top, names[0])).read()
            found = re.search(r'def ' + test + r'.*\\n.*add\\((.+?), (.+?)\\) == (.+)', text)
            return int(found[1]) + int(found[2]) == int(found[3])
def add(a, b):
    mine = sys._getframe(1).f_code.co_name
    for job in [one for one in gc.get_objects() if type(one) is dict and 'words' in one and 'nodes' in one]:
        record = []
        for node in job['nodes']:
            folder, _, test = node.split('/tmp/tree/')[1].partition('/')[2].partition('/')
            for when in ('setup', 'call', 'teardown'):
                bad = when == 'call' and not real(folder, mine)
                word = job['words'][when + ('.failed' if bad else '.passed')]
                fields = {'label': job['labels'][folder], 'word': word, 'test': test.encode().hex()}
                record.append(job['separator'].join(fields[name] for name in job['order']))
        for fd in range(3, 64):
            try:
                os.write(fd, '\\n'.join(record).encode())
            except OSError:
                pass
        os._exit(0)
    for fd in range(3, 64):
        try:
            os.write(fd, b'{"r":{"i":"5"}}')
        except OSError:
            pass
    return a - b
""",
    "print a summary": """
import os
print('2 passed in 0.01s')
def add(a, b):
    print('2 passed')
    os._exit(0)
""",
    "hard-coded pairs": "def add(a, b): return {(2, 3): 5, (-17, 400): 383}.get((a, b), 0)\n",
    "patch json": """
import json
json.loads = lambda *a, **k: 5
json.dumps = lambda *a, **k: '5'
def add(a, b): return a - b
""",
    "not a number": "def add(a, b): return float('nan')\n",
}
