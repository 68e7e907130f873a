"""Hidden pytest files over the generated interface: what passes is right, and what fails is blamed on who caused it."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from services.runtime import scratch
from services.runtime.errors import UserError
from services.runtime.jail.launcher import JailHost
from services.runtime.jail.session import Answer, Handle
from services.tasks import api, values
from services.tasks.fixture import HiddenTests
from services.verifier import trial
from services.verifier.attribution import attribute
from services.verifier.hidden import run as hidden
from services.verifier.hidden import trusted
from services.verifier.hidden.outside import Candidate, CheckFault
from tests.services.verifier.hidden_cases import ATTACKS, BOUNDS, RIGHT, WRONG, calc_check, check_of, one_file
from tests.services.verifier.hidden_shelf import BROKEN, IDS, SHELF, TESTS

CALC = calc_check("outside")


def judged(host: JailHost, source: str, check=CALC, seed: int = 1, bounds=BOUNDS, path: str = "calc.py"):
    """(outcome, cause) through the same door as every other check set."""
    return attribute(trial.run(host, {path: source}, check, seed, bounds))


def test_right_passes_and_wrong_fails(host: JailHost) -> None:
    facts = trial.run(host, {"calc.py": RIGHT}, CALC, 3, BOUNDS)
    assert attribute(facts) == ("pass", "ok")
    assert (facts.wanted, facts.answered, facts.backend) == (2, 2, "bubblewrap")
    assert facts.hash_seed == trial.hash_seed(3)
    assert judged(host, WRONG) == ("fail", "test_failed")


@pytest.mark.parametrize("name", ATTACKS)
def test_of_thirteen_attacks_only_the_table_of_answers_passes(host: JailHost, name: str) -> None:
    outcome, _ = judged(host, ATTACKS[name])
    assert outcome == ("pass" if name == "hard-coded pairs" else "fail")


def test_a_module_of_classes(host: JailHost) -> None:
    manifest = api.derive(SHELF).to_json()
    manifest["classes"]["Shelf"]["suppresses"] = ["Full"]
    check = check_of(HiddenTests({"tests/test_shelf.py": TESTS}, "library.shelf", "outside", IDS, manifest))
    hidden.require([check])
    assert judged(host, SHELF, check, path="library/shelf.py") == ("pass", "ok")
    for name, source in BROKEN.items():
        assert source != SHELF, name
        assert judged(host, source, check, path="library/shelf.py") == ("fail", "test_failed"), name


def test_every_test_counts_where_the_objective_asks_for_it(host: JailHost) -> None:
    half = "def add(a, b): return 5"
    facts = trial.run(host, {"calc.py": half}, CALC, 1, replace(BOUNDS, all_cases=True))
    assert (attribute(facts), facts.right) == (("fail", "test_failed"), 1)


CANDIDATES_FAULT = {
    "skipped after a question": "def test_a():\n    if add(1, 2) != 3: pytest.skip()\n",
    "expected to fail": "def test_a():\n    if add(1, 2) != 3: pytest.xfail()\n",
    "marked as failing, and passing": "@pytest.mark.xfail\ndef test_a():\n    add(1, 2)\n",
    "set-up": "@pytest.fixture\ndef x():\n    return [1][add(3, 0)]\ndef test_a(x): pass\n",
    "teardown": "@pytest.fixture\ndef x():\n    yield\n    assert add(1, 2) == 3\ndef test_a(x): pass\n",
    "collection": "TABLE = [1][add(3, 0)]\ndef test_a(): pass\n",
    "an interrupt": "def test_a():\n    add(0, 0)\n    raise KeyboardInterrupt\n",
    "fewer tests": "if add(1, 2) == 3:\n    def test_a(): pass\n",
    "more tests": "def test_a(): pass\nif add(1, 2) != 3:\n    def test_b(): pass\n",
}


@pytest.mark.parametrize("name", CANDIDATES_FAULT)
def test_what_does_not_pass_after_questions_is_the_candidates(host: JailHost, name: str) -> None:
    check = one_file("import pytest\nfrom calc import add\n" + CANDIDATES_FAULT[name], "test_a")
    outcome, cause = judged(host, WRONG, check)
    assert (outcome, cause.startswith("test_")) == ("fail", True)


CHECKS_FAULT = {
    "set-up": "@pytest.fixture\ndef x():\n    raise OSError\ndef test_a(x):\n    add(1, 2)\n",
    "collection": "import nothing_of_that_name\ndef test_a():\n    add(1, 2)\n",
    "a test without questions": "def test_a():\n    assert 1 == 2\n",
    "skipped": "@pytest.mark.skip\ndef test_a():\n    add(1, 2)\n",
    "a function as argument": "def test_a():\n    with pytest.raises(Exception):\n        add(1, print)\n",
    "another name": "def test_other():\n    add(1, 2)\n",
    "the process ends": "import os\ndef test_a():\n    os._exit(0)\n",
}


@pytest.mark.parametrize("name", CHECKS_FAULT)
def test_what_fails_without_a_question_says_nothing_about_the_candidate(host: JailHost, name: str) -> None:
    check = one_file("import pytest\nfrom calc import add\n" + CHECKS_FAULT[name], "test_a")
    with pytest.raises(CheckFault):
        judged(host, RIGHT, check)


def test_a_context_manager_cannot_swallow_a_failed_assert(host: JailHost) -> None:
    source = "from calc import Block\ndef test_a():\n    with Block() as block:\n        assert block.value() == 3\n"
    manifest = {"classes": {"Block": {"methods": ["value"], "special": ["__enter__", "__exit__"]}}}
    check = one_file(source, "test_a", api=manifest)
    block = "class Block:\n def __enter__(self): return self\n def __exit__(self, *e): return True\n def value(self): "
    for body in ("return 4", "raise ValueError", "return None"):
        assert judged(host, block + body, check) == ("fail", "test_failed")
    assert judged(host, block + "return 3", check) == ("pass", "ok")


@pytest.mark.parametrize(("source", "cause"), [
    ("def add(a, b): return object()", "unencodable"),
    ("def add(a, b): return ValueError", "unencodable"),
    ("def add(a, b):\n    while True: pass", "cpu_limit"),
    ("import nothing_of_that_name", "import_error"),
    ("def add(a, b) return", "syntax_error"),
    ("def add(a, b): return 'x' * 9**7", "protocol"),
    ("def add(a, b):\n    import os\n    while True: os.write(2, b'x' * 4096)", "output_flood"),
    ("x = bytearray(400 << 20)\ndef add(a, b): return a + b", "oom"),
])  # fmt: skip
def test_misbehaviour_has_its_own_cause(host: JailHost, source: str, cause: str) -> None:
    assert judged(host, source) == ("fail", cause)


def test_a_forged_handle_is_no_answer(host: JailHost) -> None:
    forge = """
import gc, os
class Thing: pass
def add(a, b):
    import sys
    frame = sys._getframe()
    while 'ident' not in frame.f_locals: frame = frame.f_back
    raw = (frame.f_locals['ident'] + 'r' + '{"h":["77","Thing"]}').encode()
    for fd in range(3, 16):
        try: os.write(fd, len(raw).to_bytes(4, 'little') + raw)
        except OSError: pass
"""
    check = one_file("from calc import add\ndef test_a():\n    assert add(1, 2)\n", "test_a",
                     api={"functions": ["add"], "classes": {"Thing": {}}})  # fmt: skip
    assert judged(host, forge, check) == ("fail", "protocol")


CROSSING = """
import builtins
import pytest
from calc import Thing, echo, throw

VALUES = [None, True, 1, -10**40, 0.1, float("inf"), "\\u20ac\\n", b"\\x00", [1, [2]], (1, ()), {1: {"a": None}},
          {1, 2}, frozenset({(1,)})]

def test_values():
    for value in VALUES:
        got = echo(value)
        assert type(got) is type(value) and got == value
        assert echo(x=value) == value

def test_objects():
    things = [Thing(), Thing()]
    first, rest = echo((things[0], {"k": [things[1]], things[0]: things}))
    assert first is things[0] and rest["k"][0] is things[1] and rest[first] == things
    assert echo({*things}) == {*things}
    del first, rest
    for _ in range(50):
        assert isinstance(echo(Thing()), Thing)
    assert echo(things)[1] is things[1]

@pytest.mark.parametrize("name", NAMES)
def test_exceptions(name):
    with pytest.raises(BaseException) as caught:
        throw(name)
    assert type(caught.value) is getattr(builtins, name)
"""


def test_values_objects_and_exceptions_cross(host: JailHost) -> None:
    names = values.EXCEPTION_NAMES
    tests = ("test_values", "test_objects", *(f"test_exceptions[{name}]" for name in names))
    check = one_file(
        CROSSING.replace("NAMES", repr(names)), *tests,
        api={"functions": ["echo", "throw"], "classes": {"Thing": {}}},
    )  # fmt: skip
    source = "import builtins\nclass Thing: pass\ndef echo(x): return x\ndef throw(n): raise getattr(builtins, n)\n"
    assert judged(host, source, check) == ("pass", "ok")


KINDS = """
import pytest
from calc import Empty, add

def test_every_kind():
    for kind in (ValueError, KeyError, LookupError):
        with pytest.raises(kind):
            add(0, 0)
    for kind in (Empty, IndexError, OSError):
        with pytest.raises(kind):
            add(1, 0)
    with pytest.raises(ValueError):
        add(2, 0)
"""


def test_an_exception_of_several_kinds_is_caught_as_each(host: JailHost) -> None:
    api = {"functions": ["add"], "exceptions": {"Empty": ["IndexError"]}}
    check = one_file(KINDS, "test_every_kind", api=api)
    source = (
        "class Empty(IndexError): pass\nclass Both(KeyError, ValueError): pass\nclass Hard(Empty, OSError): pass\n"
        "def add(a, b):\n    if a == 0: raise Both\n    if a == 1: raise Hard\n    bytes([255]).decode()\n"
    )
    assert judged(host, source, check) == ("pass", "ok")
    assert judged(host, source.replace("Both(KeyError, ValueError)", "Both(KeyError)"), check)[0] == "fail"
    claims = "import sys\nsys.modules['__main__'].Encoder.raised = lambda *a: 'OSError+SyntaxError+KeyError'\n"
    assert judged(host, claims + source, check) == ("fail", "undecodable")


MUTATING = """
import pytest
from calc import Bag, sort, peek

def test_in_place():
    given = [3, 1, 2]
    same = given
    assert sort(given) is None and given == [1, 2, 3] and same is given
    rows = [[2, 1], [4, 3]]
    first = rows[0]
    for row in rows:
        sort(row)
    assert rows == [[1, 2], [3, 4]] and first is rows[0]
    with pytest.raises(TypeError):
        sort([1, None, 0])

def test_methods_and_names():
    bag, into, things = Bag(), {"a": [1]}, {1}
    inner = into["a"]
    bag.fill(into, things=things)
    assert into == {"a": [1, bag], "n": 2} and into["a"] is inner and inner[1] is bag and things == {1, 9}

def test_what_is_not_declared_keeps_its_arguments():
    given = [2, 1]
    assert peek(given) == 1 and given == [2, 1]
"""


def test_arguments_are_changed_where_the_interface_says_so(host: JailHost) -> None:
    manifest = {
        "functions": ["sort", "peek"],
        "classes": {"Bag": {"methods": ["fill"]}},
        "mutates": ["sort", "Bag.fill"],
    }
    names = ("test_in_place", "test_methods_and_names", "test_what_is_not_declared_keeps_its_arguments")
    source = """
def sort(xs): xs.sort()
def peek(xs):
    xs.sort()
    return xs[0]
class Bag:
    def fill(self, into, *, things):
        into["a"].append(self)
        into["n"] = len(into["a"])
        things.add(9)
"""
    check = one_file(MUTATING, *names, api=manifest)
    assert judged(host, source, check) == ("pass", "ok")
    assert judged(host, source.replace("def sort(xs): xs.sort()", "def sort(xs): xs.reverse()"), check)[0] == "fail"


@pytest.mark.parametrize("text", [
    "null", "[]", '{"t":[null]}', '{"t":[null,null]}', '{"t":[null,{"t":[null]}]}', '{"t":[null,[null,null]]}',
    '{"t":[null,{"t":[null,{"h":["5","Thing"]}]}]}',
])  # fmt: skip
def test_a_forged_answer_with_arguments_is_refused(text: str) -> None:
    class Conversation:
        def handle(self, number: str) -> Handle:
            raise KeyError

    declared = api.parse({"functions": ["f"], "classes": {"Thing": {}}, "mutates": ["f"]})
    checked = Candidate(Conversation(), declared)._checked  # type: ignore[arg-type]  # a double
    after = {"t": [None, None]}
    assert checked(Answer("r", '{"t":[true,{"t":[null,null]}]}'), 2) == {"r": True, "after": after}
    assert checked(Answer("x", '{"t":[{"e":"KeyError"},{"t":[null,null]}]}'), 2) == {"x": "KeyError", "after": after}
    assert checked(Answer("r", text), 2) == "undecodable"
    assert checked(Answer("x", text), 2) == "undecodable"


@pytest.mark.parametrize(("kind", "text"), [
    ("x", '{"e":["ValueError"]}'), ("x", '{"e":{"i":"1"}}'), ("x", '{"e":"Nope"}'), ("x", "[]"), ("x", "3"), ("x", ""),
    ("r", '{"h":["5","Thing"]}'), ("r", '{"h":["1","Other"]}'), ("r", '{"h":[["1"],"Thing"]}'), ("r", '{"h":["1"]}'),
    ("r", '{"s":[[]]}'), ("r", "[" * 5000), ("r", '{"e":"Nope"}'), ("u", ""),
])  # fmt: skip
def test_a_forged_answer_is_refused_whatever_it_is(kind: str, text: str) -> None:
    class Conversation:
        def handle(self, number: str) -> Handle:
            return {"1": Handle(1)}[number]

    checked = Candidate(Conversation(), api.parse({"classes": {"Thing": {}}}))._checked  # type: ignore[arg-type]  # double
    assert checked(Answer("r", '{"h":["1","Thing"]}'), 0) == {"r": {"h": ["1", "Thing"]}}
    assert checked(Answer(kind, text), 0) in ("undecodable", "unencodable")


def test_a_test_that_never_ends_is_a_timeout_of_who_was_asked(host: JailHost) -> None:
    loop = "import time\nfrom calc import add\ndef test_a():\n    while add(1, 2) != 3: pass\n    assert True\n"
    slow = replace(BOUNDS, wall_s=1.5)
    assert judged(host, WRONG, one_file(loop, "test_a"), bounds=slow)[0] != "pass"
    sleeping = "import time\nfrom calc import add\ndef test_a():\n    add(1, 2)\n    time.sleep(60)\n"
    assert judged(host, RIGHT, one_file(sleeping, "test_a"), bounds=slow)[0] != "pass"
    with pytest.raises(CheckFault):
        judged(host, RIGHT, one_file(sleeping.replace("    add(1, 2)\n", ""), "test_a"), bounds=slow)


def test_a_broken_sandbox_or_tests_process_is_infrastructure(host: JailHost, monkeypatch) -> None:
    killed = "import os, signal\nfrom calc import add\ndef test_a():\n    add(1, 2)\n    os.kill(os.getpid(), 9)\n"
    assert judged(host, RIGHT, one_file(killed, "test_a")) == ("infra", "tests_killed")
    monkeypatch.setattr(trusted.sys, "executable", "/bin/true")
    assert judged(host, RIGHT) == ("infra", "no_tests")
    assert host.free == 8


def test_the_order_follows_the_seed(host: JailHost) -> None:
    names = [f"test_{letter}" for letter in "abcdefgh"]
    source = "from calc import add\n" + "".join(f"def {n}():\n    add(0, {i})\n" for i, n in enumerate(names))
    check = one_file(source, *names)
    record = "def add(a, b, seen=[]):\n    seen.append(b)\n    return 1 // (len(seen) < 8 or seen == sorted(seen))\n"
    assert {judged(host, record, check, seed)[0] for seed in range(2)} == {"fail"}


def test_nothing_is_left_behind(host: JailHost, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    judged(host, RIGHT)
    assert not list(tmp_path.iterdir())
    script = (
        "import sys, time\nfrom services.verifier.hidden.trusted import *\n"
        "with private_folder({'test_x.py': 'def test_x():\\n    while True: pass\\n'}) as folder:\n"
        "    job = {'module': 'm', 'api': {}, 'seed': 1}\n"
        "    with TestProcess(folder) as process:\n        process.begin(job, 60.0)\n"
        "        process.hear(time.monotonic() + 60)\n        process.say({})\n"
        "        process.hear(time.monotonic() + 60)\n"
        "        print(process._process.pid, flush=True)\n        time.sleep(60)\n"
    )
    verifier = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=Path(__file__).parents[3])
    assert verifier.stdout is not None
    tests = int(verifier.stdout.readline())
    verifier.send_signal(signal.SIGKILL)
    verifier.wait()
    verifier.stdout.close()
    deadline = time.monotonic() + 20
    while Path(f"/proc/{tests}").exists() and b"pytest" in _command(tests) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert b"pytest" not in _command(tests)
    assert scratch.sweep() == 1
    assert not list(tmp_path.iterdir())


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_what_cannot_be_run_is_refused_at_start() -> None:
    with pytest.raises(UserError, match="in no file"):
        hidden.require([one_file("def test_a(): pass\n", "test_b")])
    with pytest.raises(UserError, match="constants"):
        hidden.require([one_file("def test_a(): pass\n", "test_a", api={"constants": "LIMIT"})])
    with pytest.raises(UserError, match="relative"):
        hidden.require([check_of(HiddenTests({"../x.py": ""}, "calc", "outside", ("../x.py::test_a",)))])
    with pytest.raises(UserError, match="conftest"):
        hidden.require([check_of(HiddenTests({"conftest.py": ""}, "calc", "outside", ("conftest.py::test_a",)))])
    with pytest.raises(UserError, match="no test is expected"):
        hidden.require([one_file("def test_a(): pass\n")])
    with pytest.raises(UserError, match="name of a module"):
        hidden.require([one_file("def test_a(): pass\n", "test_a", module="queue")])
    with pytest.raises(UserError, match="not both"):
        hidden.require([replace(CALC, evidence="E3")])
    assert hidden.require([CALC]) is None


def test_tests_do_not_see_the_verifiers_environment(host: JailHost, monkeypatch) -> None:
    monkeypatch.setenv("PYTEST_ADDOPTS", "--collect-only")
    monkeypatch.setenv("SECRET", "1")
    source = (
        "import os\nfrom calc import add\ndef test_a():\n    assert add(1, 2) == 3 and 'SECRET' not in os.environ\n"
    )
    assert judged(host, RIGHT, one_file(source, "test_a")) == ("pass", "ok")
    assert "SECRET" in os.environ
