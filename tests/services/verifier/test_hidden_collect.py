"""Hidden tests of every form that pytest collects: listed by pytest, judged rightly, and what cannot be is named."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from services.runtime.errors import UserError
from services.runtime.jail.launcher import JailHost
from services.tasks.fixture import HiddenTests
from services.verifier import trial
from services.verifier.attribution import attribute
from services.verifier.hidden import collect, must_fail
from services.verifier.hidden import run as hidden
from tests.services.verifier.hidden_cases import BOUNDS, RIGHT, WRONG, check_of, one_file

FORMS = {
    "subTest": """
class Sums(unittest.TestCase):
    def test_a(self):
        for a in range(3):
            with self.subTest(a=a):
                self.assertEqual(add(a, 1), a + 1)
        self.assertEqual(add(2, 3), 5)
""",
    "subtests": """
def test_a(subtests):
    for a in range(3):
        with subtests.test(msg="one", a=a):
            assert add(a, 1) == a + 1
    assert add(2, 3) == 5
""",
    "a class of unittest": """
class Sums(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.three = add(1, 2)
    def setUp(self):
        self.four = add(self.three, 1)
    def test_a(self):
        self.assertEqual(add(2, 3), 5)
        self.assertEqual((self.three, self.four), (3, 4))
""",
    "inherited": """
class Base:
    number = 1
    def test_a(self):
        assert add(self.number, 1) == self.number + 1
class TestOne(Base): pass
class TestTwo(Base):
    number = 2
class More(unittest.TestCase):
    def test_m(self):
        self.assertEqual(add(2, 3), 5)
class Most(More): pass
class TestLast:
    def test_z(self):
        assert add(4, 4) == 8
""",
    "assigned": """
def check():
    assert add(2, 3) == 5
test_b = check
def make(n):
    def inner():
        assert add(n, n) == 2 * n
    return inner
test_c = make(4)
class TestIt:
    test_d = lambda self: check()
def test_e():
    assert add(1, 1) == 2
""",
    "under if": """
if sys.version_info >= (3, 8):
    def test_a():
        assert add(2, 3) == 5
    class TestIf:
        def test_b(self):
            assert add(2, 4) == 6
else:
    def test_never(): pass
def test_e():
    assert add(1, 1) == 2
""",
    "async": """
class Waiting(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        await asyncio.sleep(0)
        self.three = add(1, 2)
    async def test_a(self):
        await asyncio.sleep(0)
        self.assertEqual(add(2, 3), 5)
        self.assertEqual(self.three, 3)
        for a in range(2):
            with self.subTest(a=a):
                self.assertEqual(add(a, 1), a + 1)
""",
    "parameters": """
@pytest.mark.parametrize("a", [0, -1, "x::y", "a[b]", "é", 1.5, None], ids=lambda a: None)
@pytest.mark.parametrize("b", [pytest.param(2, id="two words"), 3])
def test_a(a, b):
    assert add(2, b) == 2 + b
@pytest.mark.parametrize("n", [1, 2])
class TestMany:
    class TestInner:
        @pytest.mark.parametrize("m", [3])
        def test_b(self, n, m):
            assert add(n, m) == n + m
def test_e():
    assert add(1, 1) == 2
""",
    "defined twice": """
def test_a():
    assert add(1, 1) == 3
def test_a():
    assert add(1, 1) == 2
""",
}
HEAD = "import asyncio, sys, unittest\nimport pytest\nfrom calc import add\n"


FORMS_OF_9 = ("subtests",)
OLD = not hasattr(pytest, "Subtests")


def listed(form: str, mode: str) -> HiddenTests:
    bare = HiddenTests({"test_one.py": HEAD + FORMS[form]}, "calc", mode, (), {"functions": ["add"]})
    return replace(bare, expected=collect.expectable(bare))


def _pairs(host: JailHost) -> bool:
    source = "import socket\nfrom calc import add\ndef test_a():\n    socket.socketpair()\n    assert add(1, 1) == 2\n"
    facts = trial.run(host, {"calc.py": RIGHT}, one_file(source, "test_a", mode="inside"), 1, BOUNDS)
    return attribute(facts)[0] == "pass"


@pytest.mark.parametrize("mode", ["outside", "inside"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_listed_and_judged(host: JailHost, form: str, mode: str) -> None:
    if form in FORMS_OF_9 and OLD:
        pytest.skip("this pytest has no subtests")
    check = check_of(listed(form, mode))
    assert hidden.require([check]) is None
    if (form, mode) == ("async", "inside") and not _pairs(host):
        pytest.skip("this jail refuses socket pairs, which every event loop has")
    for seed in range(1 if mode == "outside" else 3):
        assert attribute(trial.run(host, {"calc.py": RIGHT}, check, seed, BOUNDS)) == ("pass", "ok")
    assert attribute(trial.run(host, {"calc.py": WRONG}, check, 1, BOUNDS))[0] == "fail"


def test_ids_are_those_of_pytest() -> None:
    assert listed("inherited", "outside").expected == (
        "test_one.py::TestOne::test_a", "test_one.py::TestTwo::test_a", "test_one.py::More::test_m",
        "test_one.py::Most::test_m", "test_one.py::TestLast::test_z",
    )  # fmt: skip
    assert listed("assigned", "outside").expected[0] == "test_one.py::test_b"
    assert "test_one.py::test_a[two words-x::y]" in listed("parameters", "outside").expected


PARTS = """
def test_parts(subtests):
    for a in range(4):
        with subtests.test(a=a):
            BODY
def test_whole():
    assert add(1, 1) == 2
"""


@pytest.mark.skipif(OLD, reason="this pytest has no subtests")
@pytest.mark.parametrize("mode", ["outside", "inside"])
@pytest.mark.parametrize(("body", "cause"), [
    ("assert add(a, 1) == a + 1", "test_failed"),
    ("if add(a, 1) != a + 1: pytest.skip('no')", "test_skipped"),
    ("if add(a, 1) != a + 1: pytest.xfail('no')", "test_skipped"),
])  # fmt: skip
def test_a_part_that_does_not_pass_is_a_fail(host: JailHost, mode: str, body: str, cause: str) -> None:
    names = ("test_parts", "test_whole")
    check = one_file(HEAD + PARTS.replace("BODY", body), *names, mode=mode)
    odd = "def add(a, b): return a + b if a != 2 else 0\n"
    assert attribute(trial.run(host, {"calc.py": odd}, check, 1, BOUNDS)) == ("fail", cause)
    assert attribute(trial.run(host, {"calc.py": RIGHT}, check, 1, BOUNDS)) == ("pass", "ok")


@pytest.mark.skipif(OLD, reason="this pytest has no subtests")
def test_a_test_with_a_failed_part_is_not_counted_as_right(host: JailHost) -> None:
    check = one_file(HEAD + PARTS.replace("BODY", "assert add(a, 1) == a + 1"), "test_parts", "test_whole")
    odd = "def add(a, b): return a + b if a != 2 else 0\n"
    facts = trial.run(host, {"calc.py": odd}, check, 1, replace(BOUNDS, all_cases=True))
    assert (attribute(facts), facts.right) == (("fail", "test_failed"), 1)


UNSUPPORTED = {
    "async def test_a(): assert add(1, 1) == 2": ("test_a", "async"),
    "class A(unittest.TestCase):\n    async def test_a(self): self.assertEqual(add(1, 1), 2)": ("A::test_a", "async"),
    "def test_a(mocker): pass": ("test_a", "fixture mocker"),
    "@pytest.fixture\ndef x(nowhere): pass\ndef test_a(x): pass": ("test_a", "fixture nowhere"),
    "@pytest.mark.skip\ndef test_a(): pass": ("test_a", "skipped"),
    "@pytest.mark.skipif(True, reason='x')\ndef test_a(): pass": ("test_a", "skipped"),
    "@pytest.mark.skipif('sys.version_info > (3,)')\ndef test_a(): pass": ("test_a", "skipped"),
    "@pytest.mark.xfail(True, reason='x')\ndef test_a(): pass": ("test_a", "expected to fail"),
    "@pytest.fixture\nasync def x(): return 1\ndef test_a(x): pass": ("test_a", "fixture x is async"),
    "pytest.importorskip('nothing_here')\ndef test_a(): pass": ("test_one.py", "nothing_here"),
    "@unittest.skip('x')\nclass A(unittest.TestCase):\n    def test_a(self): pass": ("A::test_a", "skipped"),
    "@pytest.mark.xfail\ndef test_a(): pass": ("test_a", "expected to fail"),
    "class A(unittest.TestCase):\n    @unittest.expectedFailure\n    def test_a(self): pass": (
        "A::test_a",
        "expected to",
    ),
    "def test_a(): yield": ("test_a", "yield"),
    "import numpy_of_nobody\ndef test_a(): pass": ("test_one.py", "numpy_of_nobody"),
    "from calc import sub\ndef test_a(): pass": ("test_one.py", "sub"),
    "def test_a(:\n": ("test_one.py", "SyntaxError|invalid syntax"),
    "class TestX:\n    def __init__(self): pass\n    def test_a(self): pass\n": ("TestX::test_a", "in no file"),
    "import time\ntime.sleep(0)\nraise SystemExit(3)": ("", "collect"),
    "import os\nos._exit(0)": ("", "collect"),
    "(" * 10_000: ("test_one.py", "parenthes|nested|Memory"),
}


@pytest.mark.parametrize("source", UNSUPPORTED, ids=lambda source: source[:40])
def test_what_no_candidate_can_pass_is_named_before_anything_runs(source: str) -> None:
    name, why = UNSUPPORTED[source]
    check = one_file(HEAD + source, name if "test_a" in name else "test_a")
    with pytest.raises(UserError, match=f"(?s){name}.*({why})|({why}).*{name}") as caught:
        hidden.require([check])
    assert (caught.value.where, caught.value.do) == ("tiny/hidden", "mend the task set")
    assert check.hidden_tests is not None
    if "no file" not in why:
        with pytest.raises((UserError, ValueError), match=why):
            collect.expectable(check.hidden_tests)


def test_files_are_texts_with_names_of_tests() -> None:
    fine = "from calc import add\ndef test_a():\n    assert add(1, 1) == 2\n"
    for files, message in (
        ({"checks.py": fine}, r"in no file: checks.py::test_a \(pytest looks"),
        ({"test_a.py": fine + "def test_b():\n    assert add(1, 2) == 3\n"}, "not expected: test_a.py::test_b"),
        ({"test_a.py": fine + "# \ud800"}, "no text"),
        ({"test_a.py": fine + "\0"}, "no text"),
        ({"test_a.py": fine, "test_a.py/x": ""}, "laid out"),
        ({"x[1].py": fine}, "cannot stand"),
        ({"a\nb.py": fine}, "cannot stand"),
        ({"x" * 300 + ".py": fine}, "laid out"),
    ):
        tests = HiddenTests(files, "calc", "outside", (f"{next(iter(files))}::test_a",), {"functions": ["add"]})
        with pytest.raises(UserError, match=message):
            hidden.require([check_of(tests)])
    with pytest.raises(UserError, match="no name of a module"):
        hidden.require([one_file(fine, "test_a", module="a..b")])


def test_a_file_that_asks_while_it_is_collected_is_taken_as_it_is(host: JailHost) -> None:
    source = HEAD + "THREE = add(1, 2)\n@pytest.mark.parametrize('n', [THREE])\ndef test_a(n):\n    assert n == 3\n"
    check = one_file(source, "test_a[3]")
    assert hidden.require([check]) is None
    assert attribute(trial.run(host, {"calc.py": RIGHT}, check, 1, BOUNDS)) == ("pass", "ok")
    assert check.hidden_tests is not None
    with pytest.raises(UserError, match="asks the module"):
        collect.expectable(check.hidden_tests)
    inside = one_file("from calc import add, Thing\nclass Mine(Thing): pass\n" + source, "test_a[3]", mode="inside")
    assert hidden.require([inside]) is None


def test_copies_change_no_test_but_their_own() -> None:
    source = HEAD + FORMS["inherited"]
    expected = listed("inherited", "outside").expected
    assert set(must_fail.variants({"t.py": source}, random.Random(0)).real) == {"t.py::TestLast::test_z"}
    chosen = must_fail.variants({"test_one.py": source}, random.Random(0), expected)
    assert set(chosen.real) == {"test_one.py::TestLast::test_z"}
    with pytest.raises(must_fail.NoCanary):
        must_fail.variants({"test_one.py": source}, random.Random(0), expected[:-1])
    called = "def test_a():\n    assert add(1, 1) == 2\ndef test_b():\n    test_a()\n    assert add(1, 2) == 3\n"
    assert set(must_fail.variants({"t.py": called}, random.Random(0)).real) == {"t.py::test_b"}


@pytest.mark.parametrize("changes", [
    {"files": ["a"]}, {"files": {"a.py": 3}}, {"files": None}, {"module": 3}, {"expected": "test_a"},
    {"expected": [3]}, {"expected": {"a": 1}}, {"api": []}, {"mode": "beside"},
])  # fmt: skip
def test_documents_of_another_shape_are_no_hidden_tests(changes: dict[str, object]) -> None:
    document = listed("subTest", "outside").to_json()
    assert HiddenTests.from_json(document).to_json() == document
    with pytest.raises((TypeError, ValueError)):
        HiddenTests.from_json({**document, **changes})
