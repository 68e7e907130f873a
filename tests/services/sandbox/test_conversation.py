"""Protects the questions and answers of an assessment: one message at a time, claims only, a word for every breach."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from services.runtime.jail.backend import Options
from services.runtime.jail.channel import Closed
from services.runtime.jail.launcher import JailHost
from services.runtime.jail.limits import Limits
from services.runtime.jail.session import Answer, Conversation, Handle, Pace, Program, Server, run_trial
from services.tasks import objects, values
from services.tasks.answers import program_of
from services.tasks.fixture import ObjectClass

PACE = Pace(call_cpu_s=1.0, import_cpu_s=1.0, call_wall_s=30.0, wall_s=60.0)


def program(source: str, **changes: Any) -> Program:
    files = {"m.py": textwrap.dedent(source)}
    return Program(files, "m", **{"function": "f", "exception_names": values.EXCEPTION_NAMES, **changes})


@contextmanager
def talk(host: JailHost, what: Program, pace: Pace = PACE, options: Options | None = None) -> Iterator[Conversation]:
    jail = host.launch(Limits(), options or Options())
    try:
        asked = Conversation(jail, Limits(), pace)
        assert asked.start(what)
        yield asked
    finally:
        jail.close()


def plain(answer: Answer, asked: Conversation | None = None) -> Any:
    assert answer.kind == "r", answer
    return values.loads(answer.text, handle=None if asked is None else lambda number, kind: asked.handle(number))


def test_nothing_of_the_next_message_is_there_before_this_one_is_answered(host: JailHost) -> None:
    source = """
    import gc, select

    def f(mine):
        poll = select.poll()
        for fd in range(3, 64):
            poll.register(fd, select.POLLIN)
        readable = [fd for fd, event in poll.poll(20) if event & select.POLLIN]
        found = set()
        for thing in gc.get_objects():
            if type(thing) in (list, tuple, dict):
                for item in list(thing.values() if type(thing) is dict else thing):
                    if type(item) is str and item.startswith("secret-") and len(item) == 8:
                        found.add(item)
        return len(readable), sorted(found - {mine})
    """
    calls = [(f"secret-{n}",) for n in (0, 0, 1, 1, 2, 2)]  # no message asks one thing twice
    heard: list[Answer] = []

    def hear(index: int, answer: Answer) -> bool:
        heard.append(answer)
        return True

    jail = host.launch(Limits())
    try:
        ran = run_trial(jail, Limits(), program(source), calls, hear, 1.0, 1.0, 60.0, 30.0)
    finally:
        jail.close()
    assert ran.ending == "complete"
    for number, answer in enumerate(heard):
        readable, others = plain(answer)
        assert readable == 0
        assert set(others) <= {f"secret-{n}" for n in range((number + 1) // 2 + 1)}
    assert len(heard) == len(calls)


def test_calls_of_one_message_are_answered_one_by_one(host: JailHost) -> None:
    """Each has its own reply, its own limit, and its own end: what comes before a fault is heard."""
    source = """
    import os

    def f(what):
        if what == "spin":
            while True:
                pass
        if what == "die":
            os._exit(1)
        return what
    """
    for what, ending in (("spin", "limit"), ("die", "eof")):
        with talk(host, program(source), Pace(0.1, 1.0, 30.0, 60.0)) as asked:
            answers = asked.calls([("a",), ("b",), (what,), ("c",)])
            assert [plain(next(answers)), plain(next(answers))] == ["a", "b"]
            with pytest.raises(Closed) as closed:
                next(answers)
            assert closed.value.ending == ending == asked.transcript.ending
            assert asked.transcript.answered == 2
            with pytest.raises(Closed):
                list(asked.calls([("a",)]))


def test_hundreds_of_calls_use_what_each_may_use(host: JailHost) -> None:
    """Slow but within its limit each time: what they use together is bounded by how many they are."""
    source = """
    import time

    def f(n):
        end = time.process_time() + 0.01
        while time.process_time() < end:
            pass
        return n
    """
    heard: list[Any] = []
    jail = host.launch(Limits())
    try:
        hear = lambda index, answer: heard.append(plain(answer)) or True  # noqa: E731 - one expression
        ran = run_trial(jail, Limits(), program(source), [(n,) for n in range(130)], hear, 0.03, 1.0, 60.0, 30.0)
    finally:
        jail.close()
    assert ran.ending == "complete"
    assert heard == list(range(130))


STACK = """
class Empty(LookupError):
    pass

class Stack:
    limit = 3
    def __init__(self, *items, name="s"):
        self.items, self.name, self.open = list(items), name, False
    def push(self, item):
        self.items.append(item)
        return self
    def pop(self):
        if not self.items:
            raise Empty("nothing there")
        return self.items.pop()
    def __len__(self): return len(self.items)
    def __iter__(self): return iter(self.items)
    def __contains__(self, item): return item in self.items
    def __getitem__(self, at): return self.items[at]
    def __eq__(self, other): return isinstance(other, Stack) and self.items == other.items
    def __enter__(self):
        self.open = True
        return self
    def __exit__(self, kind, error, trace): self.open = False
    def other(self): return Hidden()

class Hidden:
    pass

def joined(*stacks, extra=()):
    return [item for stack in stacks for item in stack] + list(extra)

def pair(): return {"first": Stack(1), "again": [Stack(2)]}
"""


def stack_program(**changes: Any) -> Program:
    declared = {"handles": ("Stack", "iterator"), "own_exceptions": ("Empty",), "messages": True, "function": ""}
    return program(STACK, **{**declared, **changes})


def test_objects_stay_inside_and_are_used_by_handle(host: JailHost) -> None:
    with talk(host, stack_program()) as asked:
        one = plain(asked.construct("Stack", (1, 2), {"name": "one"}), asked)
        assert plain(asked.method(one, "push", (3,)), asked) == one
        assert plain(asked.get(one, "items")) == [1, 2, 3]
        assert plain(asked.get(one, "name")) == "one"
        assert plain(asked.get(None, "Stack.limit")) == 3
        plain(asked.set(one, "name", "other"))
        assert plain(asked.get(one, "name")) == "other"
        assert plain(asked.method(one, "__len__")) == 3
        assert plain(asked.operator("contains", (one, 2))) is True
        assert plain(asked.operator("getitem", (one, -1))) == 3
        two = plain(asked.construct("Stack", (1, 2, 3)), asked)
        assert plain(asked.operator("eq", (one, two))) is True
        assert plain(asked.call("joined", (one, two), {"extra": [9]})) == [1, 2, 3, 1, 2, 3, 9]
        assert plain(asked.method(one, "__enter__"), asked) == one
        assert plain(asked.get(one, "open")) is True
        assert plain(asked.leave(one)) is False
        items = plain(asked.operator("iter", (one,)), asked)
        assert [plain(asked.method(items, "__next__")) for _ in range(3)] == [1, 2, 3]
        ended = asked.method(items, "__next__")
        assert (ended.kind, values.loads(ended.text)) == ("x", (values.ExceptionName("StopIteration"), ""))
        assert plain(asked.call("pair"), asked) == {"first": Handle(4), "again": [Handle(5)]}
        assert asked.end().ending == "complete"
        assert asked.transcript.answered == 22


def test_own_exceptions_are_told_by_name_with_what_they_say(host: JailHost) -> None:
    with talk(host, stack_program()) as asked:
        stack = plain(asked.construct("Stack"), asked)
        answer = asked.method(stack, "pop")
        assert (answer.kind, answer.text) == ("x", '{"t":[{"e":"Empty"},"nothing there"]}')
        with pytest.raises(values.Undecodable):
            values.loads(answer.text)  # only who declared the name takes it
    with talk(host, stack_program(own_exceptions=(), messages=False)) as asked:
        stack = plain(asked.construct("Stack"), asked)
        assert asked.method(stack, "pop") == Answer("x", '{"e":"LookupError"}')
    with pytest.raises(ValueError, match="ValueError"):
        stack_program(own_exceptions=("ValueError",))


def test_only_declared_classes_become_handles_and_only_issued_numbers_are_taken(host: JailHost) -> None:
    with talk(host, stack_program()) as asked:
        first = plain(asked.construct("Stack"), asked)
        assert asked.method(first, "other").kind == "u"
        assert asked.construct("Hidden").kind == "u"
        assert asked.call("joined", ([first],)).kind == "r"
        second = plain(asked.construct("Stack"), asked)
        assert second == Handle(2)  # what could not be told used no number
        asked.release(first)
        for wrong in (first, Handle(3), Handle(99)):
            with pytest.raises(KeyError):
                asked.method(wrong, "push", (1,))
            with pytest.raises(KeyError):
                asked.operator("eq", ([wrong], [second]))
        for text in ("3", "0", "-1", "x", "", "9" * 400, "\u0662"):
            with pytest.raises(KeyError):
                asked.handle(text)
        assert plain(asked.method(second, "__len__")) == 0


@pytest.mark.parametrize("number", ["7", "0", "1"])
def test_a_forged_handle_number_ends_the_conversation(host: JailHost, number: str) -> None:
    forge = f"""
    import sys
    class Stack: pass
    def f():
        sys.modules["__main__"].Encoder.answer = lambda *a: '{{"h":["{number}","Stack"]}}'
    """
    with talk(host, program(forge, handles=("Stack",))) as asked:
        asked.release(plain(asked.construct("Stack"), asked))
        with pytest.raises(Closed):
            asked.call()
        assert asked.end().ending == "protocol"
        with pytest.raises(Closed):
            asked.call()


FORGED = """
import os, sys
def f(x):
    frame = sys._getframe()
    while "request" not in frame.f_locals:
        frame = frame.f_back
    ident = frame.f_locals["request"][0]
    raw = (ident + 'r{"i":"5"}').encode()
    os.write(OUT, len(raw).to_bytes(4, "little") + raw)
    return 4
"""


def test_a_forged_reply_is_one_claim_and_the_second_to_one_question_is_a_breach(host: JailHost) -> None:
    with talk(host, program("OUT = 4\n" + FORGED)) as asked:
        assert plain(asked.call("", (1,))) == 5  # a claimed answer like any other
        with pytest.raises(Closed):
            asked.call("", (1,))
        assert asked.transcript.ending == "protocol"
    with talk(host, program("OUT = 4\n" + FORGED)) as asked:
        asked.call("", (1,))
        assert asked.end().ending == "protocol"


ENDS: dict[str, tuple[str, set[str]]] = {
    "sleeps": ("import time\ndef f(): time.sleep(600)\n", {"deadline"}),
    "sleeps with every signal off": (
        "import signal, time\nsignal.setitimer(signal.ITIMER_PROF, 0)\nfor n in range(1, 32):\n"
        "    try: signal.signal(n, signal.SIG_IGN)\n    except OSError: pass\ndef f(): time.sleep(600)\n",
        {"deadline"}),
    "spins with its timer off": (
        "import signal\ndef f():\n    signal.setitimer(signal.ITIMER_PROF, 0)\n    while True: pass\n",
        {"limit", "deadline"}),
    "spins": ("def f():\n    while True: pass\n", {"limit", "deadline"}),
    "half a reply": ("import os\ndef f():\n    os.write(4, b'\\x99\\0\\0\\0half')\n    os._exit(0)\n", {"eof"}),
    "garbage from a thread": (
        "import os, threading, time\ndef f():\n    threading.Thread(target=os.write, args=(4, b'x' * 99)).start()\n"
        "    time.sleep(600)\n", {"protocol"}),
    "closes its pipes": (
        "import os, time\ndef f():\n    os.closerange(0, 64)\n    time.sleep(600)\n", {"eof", "deadline"}),
    "reply cap": ("def f(): return 'x' * (2 << 20)\n", {"protocol"}),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDS)
def test_every_way_not_to_answer_has_its_word(host: JailHost, name: str) -> None:
    source, endings = ENDS[name]
    pace = Pace(call_cpu_s=0.2, import_cpu_s=1.0, call_wall_s=0.7 if "deadline" in endings else 30.0, wall_s=60.0)
    with talk(host, program(source), pace) as asked:
        with pytest.raises(Closed):
            asked.call()
        assert asked.end().ending in endings
        assert asked.transcript.ready
        assert asked.transcript.wall_s < 60.0


def test_trailing_bytes_are_no_clean_end(host: JailHost) -> None:
    with talk(host, program("def f(): return 1\n")) as asked:
        assert plain(asked.call()) == 1
        assert asked.end().ending == "complete"
    with talk(host, program("import os\ndef f():\n    os.write(4, b'ab')\n")) as asked:
        with pytest.raises(Closed):
            asked.call()
        assert asked.end().ending == "protocol"
    thread = """
    import os, threading
    go, gone = threading.Event(), threading.Event()
    def late():
        go.wait()
        while True:
            os.write(4, b"ab")
            gone.set()
    def f(): threading.Thread(target=late).start()
    def g():
        go.set()
        gone.wait()
    """
    with talk(host, program(thread)) as asked:
        asked.call()
        with pytest.raises(Closed):
            asked.call("g")
        assert asked.end().ending in ("protocol", "reply_flood")


UNENCODABLE = {
    "low recursion limit": (
        "import sys\ndef f():\n    x = []\n    for _ in range(14): x = [x]\n    sys.setrecursionlimit(16)\n"
        "    return x\n"),
    "str subclass": "class S(str): pass\ndef f(): return S('a')\n",
    "float subclass": "class F(float): pass\ndef f(): return [F(1)]\n",
    "foreign key": "class K:\n    __hash__ = lambda s: 1\n    __eq__ = lambda s, o: True\ndef f(): return {K(): 1}\n",
    "class that lies about itself": "class L:\n    __class__ = int\n    __name__ = 'int'\ndef f(): return L()\n",
    "metaclass that equals all": (
        "class M(type):\n    __eq__ = lambda s, o: True\n    __hash__ = lambda s: hash(int)\n"
        "class L(metaclass=M): pass\ndef f(): return L()\n"),
    "endless generator": "def f():\n    while True: yield 1\n",
    "digits": "import sys\nsys.set_int_max_str_digits(0)\ndef f(): return 10 ** 4300\n",
    "surrogate": "def f(): return ['\\udfff']\n",
    "memory view": "def f(): return memoryview(b'a')\n",
    "the loader's own refusal": "import sys\ndef f(): raise sys.modules['__main__'].Refused\n",
}  # fmt: skip


@pytest.mark.parametrize("name", UNENCODABLE)
def test_what_is_no_value_is_told_as_such_and_the_talk_goes_on(host: JailHost, name: str) -> None:
    source = UNENCODABLE[name] + "def g(): return 1\n"
    with talk(host, program(source, drain=True)) as asked:
        answer = asked.call()
        assert answer.kind == "u" or (name, answer.kind) == ("low recursion limit", "x")
        if name != "low recursion limit":
            assert plain(asked.call("g")) == 1


def test_after_the_last_answer_nothing_the_candidate_does_counts(host: JailHost) -> None:
    source = """
    import atexit, os, sys, weakref
    atexit.register(os.write, 4, b"x" * 99)
    class Late:
        def __del__(self): os.write(4, b"y" * 99)
    kept = Late()
    def f(): return 1
    """
    with talk(host, program(source)) as asked:
        assert plain(asked.call()) == 1
        assert asked.end().ending == "complete"


def test_an_assessment_looks_like_the_runs_that_explored(host: JailHost) -> None:
    source = """
    import os, sys
    def open_fds():
        for fd in range(64):
            try:
                yield fd, os.get_inheritable(fd)
            except OSError:
                pass
    def f(x):
        main = sys.modules["__main__"]
        names = [k.decode() if type(k) is bytes else k for k in os.environ]
        return (sorted(sys.modules), sys.argv, sys.path, os.getcwd(), sorted(names), sorted(vars(main)), main.__file__,
                __name__, __file__, list(map(str, sys.flags)), list(open_fds()), sorted(os.listdir("/tmp")))
    """
    what = program(source)
    jail = host.launch(Limits())
    try:
        explored = Server(jail, Limits(), 30.0).run(what, [(1,)], 5.0, 60.0)
    finally:
        jail.close()
    with talk(host, what, options=Options(hash_seed=3)) as asked:
        assert plain(explored.answers[0]) == plain(asked.call("", (1,)))


def test_the_hash_seed_is_in_force_and_its_number_is_gone(host: JailHost) -> None:
    source = """
    import os, posix
    def f(): return hash("a"), sorted(k for k in os.environ if "SEED" in k) + [k for k in posix.environ if b"SEED" in k]
    """
    seen = []
    for seed in (1, 1, 2):
        with talk(host, program(source), options=Options(hash_seed=seed)) as asked:
            value, names = plain(asked.call())
            assert names == []
            seen.append(value)
    assert seen[0] == seen[1] != seen[2]


LINKED = """
class Cell:
    __slots__ = ("head", "tail", "extra")
    def __init__(self): raise RuntimeError("not called")

def reverse(cell):
    before = None
    while cell is not None:
        cell.tail, before, cell = before, cell, cell.tail
    return before

def extra(cell):
    cell.extra = object()
    return cell

def missing(cell):
    del cell.head
    return cell

def other(cell):
    class Cell:
        head, tail = 1, None
    return Cell()

def cycle(cell):
    cell.tail = cell
    return [cell, (cell, {cell: {cell}})]

def growing(cell):
    items = []
    Cell.tail = property(lambda self: items.append(self) or items)
    return cell
"""


def test_linked_nodes_of_the_candidates_own_class(host: JailHost) -> None:
    kind = ObjectClass("Cell", ("head", "tail"), "m")
    schema = objects.schema((kind,))
    cell = schema["Cell"]
    head: Any = None
    for number in reversed(range(1_000)):
        head = cell(number, head)
    what = program_of({"m.py": LINKED}, "m:reverse", "exact+args", (kind,))
    with talk(host, what) as asked:
        value, (after,) = values.loads(asked.call("", (head,)).text, objects=schema)
        heads = [getattr(node, "head") for node in objects.linked(value)]  # noqa: B009 - made at run time
        assert heads == list(reversed(range(1_000)))
        assert (after.head, after.tail) == (0, None)
        assert after is objects.linked(value)[-1]
        one = cell(1)
        extra, _ = values.loads(asked.call("extra", (one,)).text, objects=schema)
        assert (extra.head, extra.tail) == (1, None)
        assert asked.call("missing", (one,)).kind == "u"
        assert asked.call("other", (one,)).kind == "u"
        (node, inner), _ = values.loads(asked.call("cycle", (one,)).text, objects=schema)
        assert node.tail is node
        assert inner == (node, {node: {node}})
        grown, _ = values.loads(asked.call("growing", (one,)).text, objects=schema)
        assert grown.tail == [grown]  # every field is read once, however often the node is met
    what = program_of({"m.py": "def f(): pass\n"}, "m:f", "exact", (ObjectClass("Cell", ("head",), "m"),))
    jail = host.launch(Limits())
    try:
        asked = Conversation(jail, Limits(), PACE)
        assert not asked.start(what)
        assert asked.end().failure == ("AttributeError", 0)
    finally:
        jail.close()
