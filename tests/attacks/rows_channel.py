# ruff: noqa: E501 - attacks are read as one line each
"""R: the runner and the verdict channel. Whatever is written, patched or forged, an answer stays a claim."""

from tests.attacks.battery import GOOD, SHORT, WRONG, fail, harmless

# The reply descriptor and the id of the question in hand, as a candidate finds them in the loader's frames.
SNOOP = """
import gc, os, sys
def ids():
    found, frame = [], sys._getframe()
    while frame:
        for value in list(frame.f_locals.values()) + [v for d in frame.f_locals.values() if type(d) is dict for v in d.values()]:
            if type(value) is str and len(value) == 32 and value not in found: found.append(value)
        frame = frame.f_back
    return found
def fds():
    out = []
    for fd in range(3, 64):
        try: os.fstat(fd)
        except OSError: continue
        out.append(fd)
    return out
def put(raw):
    for fd in fds():
        try: os.write(fd, raw)
        except OSError: pass
def frame(ident, kind, text):
    raw = (ident + kind + text).encode()
    return len(raw).to_bytes(4, 'little') + raw
"""
BROKEN = (
    "protocol",
    "crash",
    "timeout",
    "undecodable",
)  # how a stream ends that was written to by others, by where it was cut

ENDINGS = [
    fail("R1", "_exit at import", "import os\nos._exit(0)\n", "no_ready"),
    fail("R1", "_exit in call", "import os\ndef add(a, b): os._exit(0)\n", "crash"),
    fail("R1", "_exit after the last call", "import os\nn = 0\ndef add(a, b):\n    global n\n    n += 1\n    if n == 5: os._exit(0)\n    return a + b\n", "crash"),
    fail("R1", "abort", "import os\ndef add(a, b): os.abort()\n", "crash", "wrong_value", "wrong_exception"),
    fail("R1", "segmentation fault", "import ctypes\ndef add(a, b): ctypes.string_at(1)\n", "crash"),
    fail("R1", "kill of everything", "import os\ndef add(a, b):\n    os.kill(-1, 9)\n    return a - b\n", "crash", "wrong_value", "wrong_exception"),
    fail("R1", "kill of the parent", "import os\ndef add(a, b):\n    try:\n        for pid in (os.getppid(), 1): os.kill(pid, 9)\n    except OSError: pass\n    return a - b\n", "crash", "wrong_value"),
    fail("R1", "kill of the process group", "import os\ndef add(a, b):\n    os.killpg(os.getpgrp(), 9)\n    return a - b\n", "crash", "wrong_value", "wrong_exception"),
    fail("R1", "stops itself", "import os, signal\ndef add(a, b):\n    os.kill(os.getpid(), signal.SIGSTOP)\n    return a - b\n", "timeout", "wrong_value", bounds=SHORT),
    fail("R2", "sys.exit in call", "import sys\ndef add(a, b): sys.exit(0)\n", "wrong_exception"),
    fail("R2", "sys.exit at import", "import sys\nsys.exit(0)\n", "import_error"),
    fail("R2", "skip", "import unittest\ndef add(a, b): raise unittest.SkipTest('x')\n", "wrong_exception"),
    fail("R2", "skip at import", "import unittest\nraise unittest.SkipTest('x')\n", "import_error"),
    fail("R2", "generator exit", "def add(a, b): raise GeneratorExit\n", "wrong_exception"),
    fail("R2", "keyboard interrupt", "def add(a, b): raise KeyboardInterrupt\n", "wrong_exception"),
    fail("R2", "pytest is not there to be left", "def add(a, b):\n    import pytest\n    pytest.exit('x', returncode=0)\n", "wrong_exception"),
    fail("R11", "speaks at exit", "import atexit, os\natexit.register(lambda: os.write(4, b'x' * 99))\n" + WRONG, "wrong_value"),
    fail("R11", "handlers and destructors", """
        import atexit, os, signal, sys, weakref
        class Late:
            def __del__(self): sys.stdout.write('2 passed'); os._exit(0)
        keep = Late()
        weakref.finalize(keep, os._exit, 0)
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        """ + WRONG, "wrong_value"),
]  # fmt: skip

FORGERIES = [
    fail("R4", "prints that it passed", "def add(a, b):\n    print('2 passed in 0.01s', flush=True)\n    return a - b\n", "wrong_value"),
    fail("R4", "writes reports", """
        import json, os
        for folder in ('/tmp', '.', '/', '/logs/verifier', '/output'):
            for name in ('reward.txt', 'reward.json', 'ctrf.json', 'junit.xml', 'results.json', '.report.json'):
                try:
                    with open(os.path.join(folder, name), 'w') as file: file.write('1')
                except OSError: pass
        """ + WRONG, "wrong_value"),
    fail("R10", "terminal sequences", "import sys\ndef add(a, b):\n    sys.stderr.write('\\x1b]0;PASS\\x07\\x1b[2J<script>alert(1)</script>\\r\\n')\n    return a - b\n", "wrong_value"),
    fail("R5", "forges at import", SNOOP + "put(frame('0' * 32, 'r', '{\"i\":\"5\"}') * 9)\n" + WRONG, "protocol"),
    fail("R5", "forges ready itself", SNOOP + "for one in ids(): put(frame(one, 'y', ''))\n" + WRONG, "protocol"),
    fail("R5", "forges ready and answers ahead", SNOOP + "for one in ids(): put(frame(one, 'y', '') + frame(one, 'r', '{\"i\":\"5\"}') * 5)\n" + WRONG, "protocol"),
    fail("R5", "forges the end of the run", SNOOP + "for one in ids(): put(frame(one, 'd', '0'))\n" + WRONG, "protocol"),
    fail("R5", "forges a new boot", SNOOP + "for one in ids(): put(frame(one, 'b', ''))\n" + WRONG, "protocol"),
    fail("R5", "answers twice", SNOOP + "def add(a, b):\n    for one in ids(): put(frame(one, 'r', '{\"i\":\"%d\"}' % (a + b)))\n    return a + b\n", "protocol"),
    fail("R5", "answers the question before", SNOOP + "old = []\ndef add(a, b):\n    for one in old: put(frame(one, 'r', '{\"i\":\"5\"}'))\n    old[:] = ids()\n    return a + b\n", "protocol"),
    fail("R5", "answers before it is asked", SNOOP + "import threading\ndef flood():\n    while True: put(frame('f' * 32, 'r', '{\"i\":\"5\"}'))\nthreading.Thread(target=flood, daemon=True).start()\n" + WRONG, "protocol", "output_flood", "wrong_value"),
    fail("R5", "a thread answers beside it", SNOOP + "import threading\ndef add(a, b):\n    got = ids()\n    thread = threading.Thread(target=lambda: [put(frame(one, 'r', '{\"i\":\"%d\"}' % (a + b))) for one in got])\n    thread.start(); thread.join()\n    return a + b\n", "protocol"),
    fail("R5", "half a frame", SNOOP + "def add(a, b):\n    put(b'\\x2d\\0')\n    return a + b\n", *BROKEN, bounds=SHORT),
    fail("R5", "a frame cut in the middle", SNOOP + "def add(a, b):\n    put(frame(ids()[0], 'r', '{\"i\":\"5\"}')[:-3])\n    return a + b\n", *BROKEN, bounds=SHORT),
    fail("R5", "the longest frame announced", SNOOP + "def add(a, b):\n    put(b'\\xff\\xff\\xff\\xff')\n    return a + b\n", "protocol"),
    fail("R5", "an empty frame", SNOOP + "def add(a, b):\n    put(b'\\0\\0\\0\\0')\n    return a + b\n", "protocol"),
    fail("R5", "bytes that are no text", SNOOP + "def add(a, b):\n    put(b'\\x2d\\0\\0\\0' + b'\\xff' * 45)\n    return a + b\n", "protocol"),
    fail("R5", "an unknown kind", SNOOP + "def add(a, b):\n    put(frame(ids()[0], 'p', 'pass'))\n    return a + b\n", "protocol"),
    fail("R5", "closes every descriptor at import", "import os\nos.closerange(0, 64)\n" + GOOD, "no_ready", "protocol"),
    fail("R5", "closes every descriptor in a call", "import os\ndef add(a, b):\n    os.closerange(0, 64)\n    return a + b\n", "crash"),
    fail("R5", "log and replies swapped", SNOOP + "for fd in fds(): os.dup2(2, fd)\n" + GOOD, "no_ready", "protocol", "crash"),
    fail("R5", "the log leads into the replies", SNOOP + "for fd in fds():\n    try: os.write(fd, b''); os.dup2(fd, 2); os.dup2(fd, 1)\n    except OSError: pass\ndef add(a, b):\n    os.write(2, b'x' * 64)\n    return a + b\n", "protocol"),
    fail("R5", "the question pipe is read empty", (SNOOP, """
        def add(a, b):
            for fd in fds():
                try:
                    os.set_blocking(fd, False)
                    os.read(fd, 65536)
                except OSError: pass
            return a + b if False else a - b
        """), "wrong_value", "crash", "timeout"),
    fail("R5", "the loader replaced", "import sys\nmain = sys.modules['__main__']\nfor name in dir(main):\n    if callable(getattr(main, name)) and not name.startswith('__'): setattr(main, name, lambda *a, **k: 'garbage')\n" + WRONG, "no_ready", "protocol", "crash", "timeout", "cpu_limit", bounds=SHORT),
    fail("R3", "code of every function swapped through gc", """
        import gc, types
        def one(*a, **k): return '{"i":"5"}'
        def add(a, b):
            for thing in gc.get_objects():
                if type(thing) is types.FunctionType and thing.__module__ == '__main__' and not thing.__closure__ and not thing.__code__.co_freevars:
                    thing.__code__ = one.__code__
            return a - b
        """, "protocol", "crash", "timeout", "cpu_limit", bounds=SHORT),
    fail("R3", "writing replaced", "import posix\nposix.write = lambda fd, data: len(data)\n" + GOOD, "timeout", bounds=SHORT),
    fail("R3", "reading replaced", "import posix, marshal\nraw = marshal.dumps(('0' * 32, 'c', 0, '', (2, 3), {}, ()))\nstream = [len(raw).to_bytes(4, 'little'), raw] * 9\nposix.read = lambda fd, count: stream.pop(0)\n" + GOOD, "protocol"),
    fail("R3", "questions replaced by known ones", "import marshal\nreal = marshal.loads\ndef known(one): return (*one[:4], (2, 3), *one[5:])\ndef loads(raw):\n    got = real(raw)\n    if type(got) is list: return [known(one) for one in got]\n    return known(got) if type(got) is tuple and len(got) == 7 else got\nmarshal.loads = loads\n" + GOOD, "wrong_value"),
    fail("R3", "an encoder that says what is public", "import sys\nfor one in list(vars(sys.modules['__main__']).values()):\n    if isinstance(one, type):\n        for name in ('answer', 'text', 'value'):\n            if hasattr(one, name): setattr(one, name, lambda self, *a, **k: '{\"i\":\"5\"}')\n" + WRONG, "wrong_value", "undecodable", "unencodable"),
    fail("R3", "limits of the loader lifted", "import sys\nmain = sys.modules['__main__']\nfor name in ('MAX_DEPTH', 'MAX_NODES', 'INT_LIMIT'):\n    if hasattr(main, name): setattr(main, name, 10 ** 5000)\nsys.set_int_max_str_digits(0)\ndef add(a, b): return [[[0] * 300] * 300, 10 ** 4400]\n", "undecodable", "unencodable", "protocol", "wrong_value", "crash"),
    fail("R3", "the id of the question changed", "import sys\nframe = sys._getframe()\nwhile frame:\n    run = frame.f_locals.get('run')\n    if type(run) is dict: run['id'] = run['current'] = 'f' * 32\n    frame = frame.f_back\n" + WRONG, "protocol"),
    fail("R3", "builtins made to agree", """
        import builtins
        class Yes:
            def __eq__(self, other): return True
            def __call__(self, *a): return True
        for name in ('isinstance', 'issubclass', 'repr', 'str', 'len', 'sorted', 'type'): setattr(builtins, name, Yes())
        """ + WRONG, "wrong_value", "crash", "protocol", "unencodable", "undecodable"),
    fail("R5", "a child answers after the loader is gone", "import os\nif os.fork(): os._exit(0)\n" + WRONG, "no_ready", "crash", "wrong_value", "timeout", bounds=SHORT),
    fail("R5", "two of them answer", "import os, time\nif os.fork(): time.sleep(0.3)\n" + GOOD, "protocol", "crash", "timeout", "lingering", bounds=SHORT),
    fail("R5", "another interpreter takes over", "import os, sys\nos.execv(sys.executable, [sys.executable, '-c', 'import time; time.sleep(9)'])\n", "timeout", "no_ready", bounds=SHORT),
    fail("R5", "another interpreter in a call", "import os, sys\ndef add(a, b): os.execv(sys.executable, [sys.executable, '-c', 'print(5)'])\n", "crash"),
    fail("R5", "a stopped loader, a speaking thread", SNOOP + "import threading, time\ndef add(a, b):\n    got = ids()\n    def speak():\n        for one in got: put(frame(one, 'r', '{\"i\":\"0\"}'))\n    threading.Thread(target=speak).start()\n    time.sleep(30)\n", "wrong_value", "protocol", bounds=SHORT),
    fail("R6", "descriptors through /proc", """
        import glob, os
        def add(a, b):
            for path in glob.glob('/proc/[0-9]*/fd/*') + glob.glob('/proc/self/fd/*') + glob.glob('/dev/fd/*'):
                try:
                    with open(path, 'wb', buffering=0) as file: file.write(b'\\x2d\\0\\0\\0' + b'f' * 32 + b'r{"i":"5"}  ')
                except OSError: pass
            return a - b
        """, "wrong_value", *BROKEN, bounds=SHORT),
    fail("R5", "looks ahead in the question pipe", (SNOOP, """
        import select, time
        def add(a, b):
            time.sleep(0.002)
            waiting = select.select([fd for fd in fds()], [], [], 0)[0]
            for fd in waiting:
                try:
                    os.set_blocking(fd, False)
                    if os.read(fd, 1): return a + b
                except OSError: pass
            return a - b
        """), "wrong_value", *BROKEN, bounds=SHORT),
    fail("R5", "looks for coming questions in memory", """
        import gc
        held = 0
        def add(a, b):
            pairs = {id(t) for t in gc.get_objects() if type(t) is tuple and len(t) == 2 and all(type(x) is int for x in t)}
            texts = {t for t in gc.get_objects() if type(t) is tuple and len(t) == 2 and type(t[0]) is str and len(t[0]) == 32}
            return a + b if len(texts) > 1 else a - b
        """, "wrong_value"),
    fail("R5", "traces the loader for a question and its repeat", """
        import sys
        seen = []
        def spy(frame, event, argument):
            asked = [v for v in frame.f_locals.values() if type(v) is list and len(v) > 1 and type(v[0]) is tuple]
            seen.append([v for v in asked if len({repr(one[4]) for one in v}) < len(v)])
            return spy
        sys.settrace(spy)
        frame = sys._getframe()
        while frame:
            frame.f_trace = spy
            frame = frame.f_back
        def add(a, b): return a + b if any(seen) else a - b
        """, "wrong_value"),
]  # fmt: skip

# What stands in a reply. `{}` is the text; the loader's own encoder is not asked.
TEXTS = {
    "float for int": '{"f":"0x1.4000000000000p+2"}',
    "raw number": "5",
    "number as text": '"5"',
    "exponent": '{"i":"5e0"}',
    "plus sign": '{"i":"+5"}',
    "leading zero": '{"i":"05"}',
    "underscore": '{"i":"0_5"}',
    "spaces": '{"i":" 5"}',
    "giant int": '{"i":"' + "9" * 5000 + '"}',
    "two tags": '{"i":"5","f":"0x1p+0"}',
    "same key twice": '{"i":"5","i":"6"}',
    "NaN": "NaN",
    "Infinity": "-Infinity",
    "overflowing float": '{"f":"0x1p+9999"}',
    "deep": "[" * 500 + "]" * 500,
    "cut": '{"i":"5"',
    "two texts": '{"i":"5"} {"i":"5"}',
    "pickle": '{"b":"gASVBQAAAAAAAACMAnMuLg=="}',
    "yaml tag": '"!!python/object/apply:os.system [id]"',
    "unknown tag": '{"o":"solution.Evil"}',
    "handle": '{"h":["0","Evil"]}',
    "graph": '{"g":[[["Evil",[]]],{"n":"0"}]}',
    "empty": "",
    "surrogate": '"\\ud800"',
    "proto": '{"__class__":"int"}',
}
REPLIES = [
    fail("R7", f"reply of {name}", SNOOP + f"TEXT = {text!r}\nimport sys\ndef add(a, b):\n    for one in ids(): put(frame(one, 'r', TEXT))\n    return a + b\n", "undecodable", "wrong_value", "protocol")
    for name, text in TEXTS.items()
]  # fmt: skip

VALUES = [
    fail("R7", "giant int", "def add(a, b): return 10 ** 5000\n", "unencodable"),
    fail("R7", "deep list", "def add(a, b):\n    x = []\n    for _ in range(200): x = [x]\n    return x\n", "unencodable"),
    fail("R7", "very deep list", "def add(a, b):\n    x = []\n    for _ in range(10 ** 5): x = [x]\n    return x\n", "unencodable"),
    fail("R7", "cycle", "def add(a, b):\n    x = []\n    x.append(x)\n    return x\n", "unencodable"),
    fail("R7", "cycle through a dict", "def add(a, b):\n    x = {}\n    x[0] = [x]\n    return x\n", "unencodable"),
    fail("R7", "lone surrogate", "def add(a, b): return '\\ud800'\n", "unencodable"),
    fail("R7", "wide list", "def add(a, b): return [0] * 200_000\n", "unencodable"),
    fail("R7", "large text", "def add(a, b): return 'x' * (3 << 19)\n", "protocol", "unencodable", "undecodable", "wrong_value"),
    fail("R7", "reduce", "class E:\n    def __reduce__(self): return (print, ('x',))\ndef add(a, b): return E()\n", "unencodable"),
    fail("R14", "exception of another module", "class E(Exception): pass\nE.__module__, E.__name__, E.__qualname__ = 'os', 'system', 'system'\ndef add(a, b): raise E('touch /tmp/x')\n", "wrong_exception"),
    fail("R14", "exception that calls itself expected", "class E(Exception): pass\nE.__module__, E.__name__ = 'builtins', 'PASS'\ndef add(a, b): raise E\n", "wrong_exception"),
    fail("R14", "exception with hostile lineage", """
        class Meta(type):
            @property
            def __mro__(cls): raise SystemExit(0)
            @property
            def __name__(cls): return 'x' * (1 << 22)
            def mro(cls): return [cls, Exception, BaseException, object]
        class E(Exception, metaclass=Meta): pass
        def add(a, b): raise E
        """, "unencodable", "wrong_exception", "crash"),
    fail("R14", "exception with hostile lineage at import", "class Meta(type):\n    __mro__ = property(lambda c: 1 / 0)\nclass E(Exception, metaclass=Meta): pass\nraise E\n", "import_error", "no_ready"),
    fail("R14", "exception whose name is text of ours", "class Meta(type):\n    __name__ = property(lambda c: 'x\"},{\"i\":\"5')\n    __module__ = 'builtins'\nclass E(Exception, metaclass=Meta): pass\ndef add(a, b): raise E\n", "wrong_exception", "undecodable", "unencodable"),
    fail("R14", "broken text with a hostile line", "class E(SyntaxError):\n    lineno = property(lambda s: '\\x1b[2J' * 99)\nraise E\n", "syntax_error", "import_error"),
    fail("R14", "exception that cannot be made", "class E(ValueError):\n    def __new__(cls, *a): raise SystemExit(0)\ndef add(a, b): raise E\n", "wrong_exception"),
    fail("R14", "group of exceptions", "def add(a, b): raise BaseExceptionGroup('x', [SystemExit(0)])\n", "wrong_exception"),
]  # fmt: skip

HARMLESS = [
    harmless("R4", "prints that it failed", "print('FAILED (failures=9)')\n" + GOOD),
    harmless("R13", "own tools on the path", "import os\nos.makedirs('/tmp/bin')\nfor name in ('python', 'bash', 'git', 'timeout', 'tar'):\n    with open('/tmp/bin/' + name, 'w') as file: file.write('#!/bin/sh\\nexit 0\\n')\n    os.chmod('/tmp/bin/' + name, 0o755)\nos.environ['PATH'] = '/tmp/bin'\n" + GOOD),
    harmless("R13", "no shell and no tool to begin with", "import os\nfor name in ('/bin/sh', '/bin/bash', '/usr/bin/env', '/usr/bin/git', '/usr/bin/perl'): assert not os.path.exists(name), name\n" + GOOD),
    harmless("R11", "signal handlers", "import signal\nfor number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT): signal.signal(number, lambda *a: None)\n" + GOOD),
    harmless("R11", "exit hooks that never end", "import atexit, time\natexit.register(time.sleep, 60)\n" + GOOD),
    harmless("R5", "standard streams closed", "import sys\nsys.stdout.close(); sys.stdin.close()\n" + GOOD),
]  # fmt: skip

ROWS = ENDINGS + FORGERIES + REPLIES + VALUES + HARMLESS
