# ruff: noqa: E501 - attacks are read as one line each
"""X: resources. Each fails for what it did, and none costs its host more than its limits say."""

from tests.attacks.battery import GOOD, SHORT, fail, harmless

# Ended by the kernel itself; on a busy machine its sampled time runs ahead of what its control group measured.
KERNEL = ("cpu_limit", "crash")

MEMORY = [
    fail("X1", "memory bomb", "def add(a, b): return len(b'x' * (400 << 20))\n", "oom"),
    fail("X1", "memory bomb in a child", "import os\ndef add(a, b):\n    if os.fork() == 0:\n        bytearray(400 << 20)\n        os._exit(0)\n    os.wait()\n    return a + b\n", "oom"),
    fail("X1", "memory bomb in a daemon", "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        x = []\n        while True: x.append(bytearray(8 << 20))\n    os._exit(0)\ntime.sleep(0.4)\n" + GOOD, "oom", bounded=True),
    fail("X1", "growth by steps", "x = []\ndef add(a, b):\n    for _ in range(60): x.append(bytearray(1 << 20))\n    return a + b\n", "oom"),
    fail("X1", "shared mapping", "import mmap\ndef add(a, b):\n    m = mmap.mmap(-1, 300 << 20)\n    for at in range(0, 300 << 20, 4096): m[at] = 1\n    return a + b\n", "oom", "wrong_exception", "cpu_limit"),
    fail("X1", "files and heap together", "def add(a, b):\n    with open('/tmp/f', 'wb') as file: file.write(b'x' * (12 << 20))\n    return len(b'x' * (90 << 20)) and a + b\n", "oom"),
    fail("X1", "threads that hold stacks", "import threading, time\ndef add(a, b):\n    threading.stack_size(64 << 20)\n    def eat(n): return eat(n + 1) if n < 900 else bytearray(50 << 20) and time.sleep(9)\n    for _ in range(4): threading.Thread(target=eat, args=(0,), daemon=True).start()\n    time.sleep(0.5)\n    return a + b\n", "oom", "processes", "timeout", "cpu_limit"),
    fail("X1", "impossible allocation", "def add(a, b): return [0] * 10 ** 15\n", "wrong_exception", "oom"),
    fail("X1", "endless text", "def add(a, b):\n    x = 'x'\n    while True: x += x\n", "oom", "wrong_exception", "cpu_limit"),
    fail("X1", "in-memory file", "import os\ndef add(a, b):\n    fd = os.memfd_create('x')\n    for _ in range(200): os.write(fd, b'x' * (1 << 20))\n    return a + b\n", "oom", "wrong_exception"),
]  # fmt: skip

PROCESSES = [
    fail("X2", "fork bomb", "import os, time\ndef add(a, b):\n    try:\n        while True:\n            if os.fork() == 0: time.sleep(30)\n    except OSError: pass\n    return a + b\n", "processes", bounded=True),
    fail("X2", "fork bomb at import", "import os\nwhile True:\n    try: os.fork()\n    except OSError: break\n" + GOOD, "processes"),
    fail("X2", "thread bomb", "import threading, time\ndef add(a, b):\n    try:\n        for _ in range(64): threading.Thread(target=time.sleep, args=(30,), daemon=True).start()\n    except RuntimeError: pass\n    return a + b\n", "processes", bounded=True),
    fail("X2", "vfork through subprocess", "import subprocess, sys\ndef add(a, b):\n    try:\n        for _ in range(30): subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(30)'])\n    except OSError: pass\n    return a + b\n", "processes", "cpu_limit", bounded=True),
    fail("X6", "descriptors", "import os\ndef add(a, b): return [os.pipe() for _ in range(99)] and a + b\n", "wrong_exception"),
    fail("X6", "descriptors in children", "import os\ndef add(a, b):\n    keep = [os.open('/tmp', os.O_RDONLY) for _ in range(200)]\n    return a + b\n", "wrong_exception"),
    fail("X6", "message queues", "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\ndef add(a, b):\n    made = [libc.msgget(0, 0o600) for _ in range(64)] + [libc.semget(0, 9, 0o600) for _ in range(64)] + [libc.shmget(0, 1 << 20, 0o600) for _ in range(64)]\n    if all(one < 0 for one in made): raise OSError('refused')\n    return a + b\n", "wrong_exception"),
    fail("X6", "watches", "import ctypes\nlibc = ctypes.CDLL(None)\ndef add(a, b):\n    if libc.inotify_init() < 0 and libc.fanotify_init(0, 0) < 0: raise OSError\n    return a + b\n", "wrong_exception"),
]  # fmt: skip

TIME = [
    fail("X3", "spin", "def add(a, b):\n    while True: pass\n", "cpu_limit"),
    fail("X3", "spin at import", "while True: pass\n", "cpu_limit"),
    fail("X3", "spin that swallows", "def add(a, b):\n    while True:\n        try:\n            while True: pass\n        except BaseException: pass\n", "cpu_limit"),
    fail("X3", "spin in C with the signal ignored", "import signal\nsignal.signal(signal.SIGPROF, signal.SIG_IGN)\ndef add(a, b):\n    while True: sum(range(10 ** 7))\n", *KERNEL),
    fail("X3", "timer put off", "import signal\ndef add(a, b):\n    signal.setitimer(signal.ITIMER_PROF, 0)\n    while True: pass\n", *KERNEL),
    fail("X3", "signal blocked", "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\ndef add(a, b):\n    while True: pass\n", *KERNEL),
    fail("X3", "kernel's own CPU signal ignored", "import signal\nfor number in (signal.SIGXCPU, signal.SIGPROF, signal.SIGALRM): signal.signal(number, signal.SIG_IGN)\ndef add(a, b):\n    while True: sum(range(10 ** 6))\n", *KERNEL),
    fail("X3", "spin in a thread", "import threading\ndef spin():\n    while True: pass\ndef add(a, b):\n    thread = threading.Thread(target=spin)\n    thread.start(); thread.join()\n", *KERNEL),
    fail("X3", "spin in a destructor", "class D:\n    def __del__(self):\n        while True: pass\ndef add(a, b):\n    D()\n    return a + b\n", "cpu_limit"),
    fail("X3", "power in C", "def add(a, b): return 7 ** (7 ** 9) and a + b\n", *KERNEL, "oom"),
    fail("X3", "digits in C", "import sys\nsys.set_int_max_str_digits(0)\ndef add(a, b): return len(str(1 << 3_000_000)) and a + b\n", *KERNEL),
    fail("X3", "expression that backtracks", "import re\ndef add(a, b): return re.match('(a+)+$', 'a' * 60 + 'b') or a + b\n", "cpu_limit"),
    fail("X3", "sort that never compares alike", "import random\nclass K:\n    def __lt__(self, other): return random.random() < 0.5\ndef add(a, b):\n    while True: sorted(K() for _ in range(10_000))\n", "cpu_limit"),
    fail("X3", "children spin, the parent waits", "import os\ndef add(a, b):\n    for _ in range(4):\n        if os.fork() == 0:\n            while True: pass\n    os.wait()\n", "timeout", "cpu_limit", bounds=SHORT),
    fail("X3", "slow but right, the timer put off", "import signal, time\ndef add(a, b):\n    signal.setitimer(signal.ITIMER_PROF, 0)\n    end = time.process_time() + 0.6\n    while time.process_time() < end: pass\n    return a + b\n", "cpu_limit"),
    fail("X3", "sessions that spin while the answer is awaited", "import os, time\ndef add(a, b):\n    for _ in range(8):\n        if os.fork() == 0:\n            os.setsid()\n            while True: pass\n    time.sleep(60)\n", "cpu_limit"),
    fail("X3", "slow but right, in children", "import os, time\ndef add(a, b):\n    for _ in range(3):\n        if os.fork() == 0:\n            end = time.process_time() + 0.3\n            while time.process_time() < end: pass\n            os._exit(0)\n    for _ in range(3): os.wait()\n    return a + b\n", "cpu_limit"),
    fail("X3", "sleep", "import time\ndef add(a, b):\n    time.sleep(60)\n", "timeout", bounds=SHORT),
    fail("X3", "sleep at import", "import time\ntime.sleep(60)\n", "timeout", bounds=SHORT),
    fail("X3", "naps below every limit", "import time\ndef add(a, b):\n    time.sleep(0.4)\n    return a + b\n", "timeout", bounds=SHORT),
    fail("X3", "deadlock", "import threading\nlock = threading.Lock()\ndef add(a, b):\n    lock.acquire(); lock.acquire()\n", "timeout", bounds=SHORT),
    fail("X3", "recursion", "def add(a, b): return add(a, b)\n", "wrong_exception"),
    fail("X3", "recursion without bound", "import sys\nsys.setrecursionlimit(10 ** 9)\ndef add(a, b): return add(a, b) + 1\n", "oom", "crash", "cpu_limit"),
    fail("X3", "stack of the interpreter", "import sys\nsys.setrecursionlimit(10 ** 9)\nclass R:\n    def __repr__(self): return repr(self) + 'x'\ndef add(a, b): return repr(R())\n", "crash", "oom", "cpu_limit"),
]  # fmt: skip

OUTPUT = [
    fail("X4", "log flood", "def add(a, b):\n    for _ in range(99): print('x' * 4096)\n    return a + b\n", "output_flood"),
    fail("X4", "log flood in bursts", "import os, time\ndef add(a, b):\n    for _ in range(40):\n        os.write(2, b'x' * 8192); time.sleep(0.002)\n    return a + b\n", "output_flood"),
    fail("X4", "log flood of a child", "import os, time\nif os.fork() == 0:\n    while True: os.write(1, b'x' * 4096)\ntime.sleep(0.3)\n" + GOOD, "output_flood"),
    fail("X4", "log flood at import", "import sys\nwhile True: sys.stderr.write('y' * 65536)\n", "output_flood", "cpu_limit"),
    harmless("X4", "prints as debugging does", "def add(a, b):\n    for _ in range(40): print('x' * 3072)\n    return a + b\n"),
    fail("X4", "large reply", "def add(a, b): return 'x' * (2 << 20)\n", "protocol", "unencodable"),
    fail("X4", "reply flood", "import os\ndef add(a, b):\n    for fd in range(3, 64):\n        try:\n            while True: os.write(fd, b'\\x00\\x00\\x10\\x00' + b'x' * (1 << 20))\n        except OSError: pass\n", "protocol", "output_flood"),
    fail("X5", "disk fill", "def add(a, b):\n    for n in range(99):\n        with open(f'/tmp/f{n}', 'wb') as file: file.write(b'x' * (1 << 20))\n    return a + b\n", "wrong_exception"),
    fail("X5", "one large file", "def add(a, b):\n    with open('/tmp/f', 'wb') as file:\n        for _ in range(64): file.write(b'x' * (1 << 20))\n    return a + b\n", "wrong_exception", "crash"),
    fail("X5", "hole in a file", "import os\ndef add(a, b):\n    with open('/tmp/f', 'wb') as file: file.truncate(1 << 40)\n    return a + b\n", "wrong_exception", "crash"),
    fail("X5", "inodes", "import os\ndef add(a, b):\n    for n in range(50_000): os.close(os.open(f'/tmp/i{n}', os.O_CREAT | os.O_WRONLY))\n    return a + b\n", "wrong_exception", "cpu_limit"),
    fail("X5", "folders in folders", "import os\ndef add(a, b):\n    for n in range(50_000):\n        os.mkdir('d'); os.chdir('d')\n    return a + b\n", "wrong_exception", "cpu_limit"),
    fail("X5", "other places to write", "import os\ndef add(a, b):\n    for folder in ('/dev/shm', '/var/tmp', '/run', '/dev', '/python', '/home', '/root', '/etc'):\n        try:\n            with open(folder + '/f', 'wb') as file: file.write(b'x' * (64 << 20))\n            return a + b\n        except OSError: pass\n    raise OSError('nowhere')\n", "wrong_exception", "oom"),
    fail("X7", "archive that grows", "import zlib\ndef add(a, b): return zlib.compress(b'0' * (8 << 20))\n", "wrong_value"),
    fail("X7", "digits for the trusted side", "def add(a, b): return 10 ** 4299\n", "wrong_value"),
    fail("X7", "many keys for the trusted side", "def add(a, b): return {str(n): n for n in range(15_000)}\n", "wrong_value", "undecodable", "protocol", "cpu_limit"),
    fail("X7", "keys of one hash for the trusted side", "def add(a, b): return {n * (2 ** 61 - 1): 0 for n in range(1, 4000)}\n", "wrong_value", "undecodable", "cpu_limit"),
    fail("X8", "core dump", "import os, resource, signal\ndef add(a, b):\n    resource.setrlimit(resource.RLIMIT_CORE, (1 << 30, 1 << 30))\n    os.abort()\n", "wrong_exception"),
]  # fmt: skip

ROWS = MEMORY + PROCESSES + TIME + OUTPUT
