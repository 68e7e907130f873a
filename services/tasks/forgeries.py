"""Programs that solve nothing and try to be judged right all the same, one for each way; every check-set rejects all.

They need no more than the name of the function, so that a certificate can say of any check-set that it was attacked.
The verifier's own battery goes much deeper, on checks made for it.
"""

from collections.abc import Mapping
from types import MappingProxyType

_BODIES: Mapping[str, str] = MappingProxyType(
    {
        "equal to everything": (
            "class Equal:\n"
            "    def __eq__(self, other): return True\n"
            "    def __hash__(self): return 0\n"
            "    def __bool__(self): return True\n"
            "def {entry}(*args): return Equal()\n"
        ),
        "a number equal to everything": (
            "class Equal(int):\n"
            "    __class__ = property(lambda self: int)\n"
            "    def __eq__(self, other): return True\n"
            "    __hash__ = int.__hash__\n"
            "def {entry}(*args): return Equal(1)\n"
        ),
        "the end of the process while it is imported": "import os\nos._exit(0)\n",
        "the end of the process in a call": "import os\ndef {entry}(*args): os._exit(0)\n",
        "an exit that no handler keeps": "def {entry}(*args): raise SystemExit(0)\n",
        "a report of success": (
            "import os, sys\n"
            "def {entry}(*args):\n"
            "    print('1 passed in 0.01s', flush=True)\n"
            "    print('PASS', file=sys.stderr, flush=True)\n"
            "    os._exit(0)\n"
        ),
        "replies forged on every open file": (
            "import os\n"
            "def {entry}(*args):\n"
            "    for fd in range(64):\n"
            "        for word in (b'rnull', b'{{\"verdict\": \"pass\"}}\\n', b'\\x00' * 64):\n"
            "            try: os.write(fd, word)\n"
            "            except OSError: pass\n"
            "    return None\n"
        ),
        "expected answers searched in every frame": (
            "import sys\n"
            "def {entry}(*args):\n"
            "    frame = sys._getframe()\n"
            "    while frame is not None:\n"
            "        for name, value in list(frame.f_locals.items()) + list(frame.f_globals.items()):\n"
            "            if name in ('expected', 'answer', 'answers', 'want', 'wanted'): return value\n"
            "        frame = frame.f_back\n"
            "    return None\n"
        ),
        "comparisons of the interpreter replaced": (
            "import builtins\n"
            "class Yes(type):\n"
            "    def __instancecheck__(cls, other): return True\n"
            "    def __eq__(cls, other): return True\n"
            "    __hash__ = type.__hash__\n"
            "class Any(metaclass=Yes): pass\n"
            "builtins.type = lambda *args: Any\n"
            "builtins.isinstance = lambda *args: True\n"
            "def {entry}(*args): return Any()\n"
        ),
        "the arguments as they came": "def {entry}(*args): return args[0] if args else None\n",
        "nothing": "def {entry}(*args): return None\n",
        "an error for everything": "def {entry}(*args): raise ValueError\n",
    }
)


def forgeries(function: str) -> dict[str, str]:
    """By what is tried: the source of a module whose `function` does that."""
    return {what: body.format(entry=function) for what, body in _BODIES.items()}
