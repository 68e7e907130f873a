# ruff: noqa: E501 - attacks are read as one line each
"""B, H and E: the interpreter's start, hidden data, and ways out. Each tries, asserts that it got nothing, and answers rightly."""

from tests.attacks.battery import GOOD, WRONG, fail, harmless

# System calls by number (x86-64) with arguments that would do something if they were let through.
CALLS = """
import ctypes, os, platform
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    ctypes.set_errno(0)
    got = libc.syscall(number, *(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments))
    return got, ctypes.get_errno()
here = platform.machine() == 'x86_64'
def none_of(**calls):
    if here:
        through = {name: got for name, arguments in calls.items() if (got := call(*arguments))[0] >= 0}
        assert not through, through
buffer = ctypes.create_string_buffer(4096)
"""

BOOT = [
    harmless("B1", "empty environment", "import os\nassert set(os.environ) <= {'LC_CTYPE', 'PWD', 'PATH', 'HOME', 'HOSTNAME'}, dict(os.environ)\nfor word in ('PYTHON', 'LD_', 'AWS', 'TOKEN', 'KEY', 'SECRET', 'PASS', 'PROXY', 'GIT'):\n    assert not [name for name in os.environ if word in name.upper()], dict(os.environ)\n" + GOOD),
    harmless("B1", "start-up files", "import os\nfor name in ('/tmp/.env', '/tmp/.pythonrc', '/tmp/sitecustomize.py', '/tmp/usercustomize.py', '/tmp/conftest.py', '/tmp/pytest.ini'):\n    with open(name, 'w') as file: file.write('raise SystemExit(0)')\n" + GOOD),
    harmless("B2", "isolated path", "import sys\nassert sys.flags.no_user_site and sys.flags.no_site and sys.flags.safe_path and '' not in sys.path and '/tmp' not in sys.path, (sys.flags, sys.path)\n" + GOOD),
    harmless("B4", "nothing of the interpreter can be written", "import os, sys\nfor top in [p for p in sys.path if p.startswith(('/python', '/usr', '/opt', '/lib'))] + [os.path.dirname(sys.executable)]:\n    for folder, _, files in os.walk(top):\n        assert not os.access(folder, os.W_OK), folder\n        for name in files[:3]: assert not os.access(os.path.join(folder, name), os.W_OK), name\n" + GOOD),
    harmless("B5", "hooks", "import sys, builtins\nsys.meta_path.clear(); sys.path_hooks.clear(); sys.path.clear()\nbuiltins.print = builtins.open = None\nsys.setprofile(lambda *a: None)\nsys.settrace(lambda *a: None)\n" + GOOD),
    harmless("B5", "modules swapped", "import sys, types\nfor name in ('json', 're', 'struct', 'binascii', 'marshal', 'posix'): sys.modules[name] = types.ModuleType(name)\n" + GOOD),
    harmless("B6", "no test runner and no installed packages", "import importlib.util, sys\nfor name in ('pytest', '_pytest', 'pluggy', 'pip', 'setuptools', 'services', 'schemas'): assert importlib.util.find_spec(name) is None, name\n" + GOOD),
]  # fmt: skip

HIDDEN = [
    harmless("H1", "nothing hidden on disk", "import os\nfor folder, folders, files in os.walk('/'):\n    if folder in ('/proc', '/sys'): folders[:] = []\n    for name in folders + files: assert not any(word in name.lower() for word in ('hidden', 'rollstream', 'fixture', 'checkset', 'test_solution', '.jsonl')), (folder, name)\n" + GOOD),
    fail("H2", "expected answers in frames", "import sys\ndef add(a, b):\n    frame = sys._getframe()\n    while frame:\n        for value in frame.f_locals.values():\n            if type(value) is int and value == a + b and value not in (a, b): return value\n            if type(value) in (list, tuple, dict) and a + b in list(value) and (a, b) != tuple(value): return a + b\n        frame = frame.f_back\n    return a - b\n", "wrong_value", check="fresh"),
    fail("H3", "expected answers in memory", "import gc, sys\ndef add(a, b):\n    for thing in gc.get_objects():\n        if type(thing) in (list, tuple) and a + b in [v for v in thing if type(v) is int] and a not in thing: return a + b\n    return a - b\n", "wrong_value", check="fresh"),
    harmless("H3", "own memory holds nothing of the trusted side", "import sys\nwords = [w for w in ('fixed' + '_cases', 'known' + '_bad', 'Check' + 'Set', 'oracle' + '_digest')]\nimport gc\ntexts = [t for t in gc.get_objects() if type(t) is dict]\nfor table in texts:\n    for key in list(table): assert key not in words, key\n" + GOOD),
    harmless("H4", "environment and arguments of process 1", "import glob\nfor path in glob.glob('/proc/[0-9]*/environ') + glob.glob('/proc/[0-9]*/cmdline'):\n    try:\n        with open(path, 'rb') as file: raw = file.read()\n    except OSError: continue\n    for word in (b'TOKEN', b'SECRET', b'rollstream', b'/work/', b'--bind', b'--ro-bind', b'PYTHONPATH'): assert word not in raw, raw\n" + GOOD),
    harmless("H5", "other processes", CALLS + "none_of(ptrace_attach=(101, 16, 1, 0, 0), ptrace_seize=(101, 0x4206, 1, 0, 0), readv=(310, 1, buffer, 1, buffer, 1, 0), writev=(311, 1, buffer, 1, buffer, 1, 0), getfd=(438, 3, 0, 0), open=(434, 1, 0), kcmp=(312, 1, os.getpid(), 0, 0, 0))\nimport glob\nfor path in ('/proc/1/root/etc/shadow', '/proc/1/root/root', '/proc/kcore', '/proc/kmsg', '/proc/kallsyms'):\n    try:\n        with open(path, 'rb') as file: raw = file.read(64)\n    except OSError: continue\n    assert not raw.strip(b'0 \\n') or raw.startswith(b'0000000000000000 '), (path, raw)\n" + GOOD),
    harmless("H6", "no way to a network or a daemon", (CALLS, """
        import glob
        def reach(family, kind, protocol, address):
            fd, _ = call(41, family, kind, protocol)
            if fd < 0: return False
            done, _ = call(42, fd, address, len(address))
            os.close(fd)
            return done == 0
        def inet(*parts): return b'\\x02\\0' + (80).to_bytes(2, 'big') + bytes(parts) + b'\\0' * 8
        if here:
            for family, kind, address in ((2, 1, inet(169, 254, 169, 254)), (2, 1, inet(172, 17, 0, 1)), (2, 2, inet(8, 8, 8, 8)), (2, 1, inet(1, 1, 1, 1)),
                    (1, 1, b'\\x01\\0/var/run/docker.sock\\0'), (1, 1, b'\\x01\\0/run/containerd/containerd.sock\\0'), (1, 1, b'\\x01\\0\\0rollstream'), (40, 1, b'\\x28\\0' + b'\\0' * 14)):
                assert not reach(family, kind, 0, address), (family, address)
            for family, kind in ((16, 3), (17, 3), (38, 5), (44, 3), (2, 3), (10, 3), (29, 3)): assert call(41, family, kind, 0)[0] < 0, family
        for path in ('/var/run/docker.sock', '/run/docker.sock', '/run/dbus', '/etc/resolv.conf.d', '/run/rollstream-jails', '/var/run/secrets'): assert not os.path.exists(path), path
        """ + GOOD)),
    harmless("H7", "no history, caches or packages", "import os\nfor folder, folders, files in os.walk('/'):\n    if folder.startswith(('/proc', '/sys')): folders[:] = []; continue\n    for name in folders + files: assert name not in ('.git', '.hg', '.cache', 'pip', 'objects', 'packed-refs') and not name.endswith(('.whl', '.pack', '.bundle')), (folder, name)\n" + GOOD),
    fail("H8", "nothing is told back", "import sys\ndef add(a, b):\n    sys.stderr.write('%r' % (a,))\n    return a - b\n", "wrong_value"),
]  # fmt: skip

ESCAPES = [
    harmless("E1", "daemon that lets go", "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        os.closerange(0, 64)\n        time.sleep(60)\n    os._exit(0)\n" + GOOD),
    harmless("E1", "child that keeps the pipes", "import os, time\ndef add(a, b):\n    if os.fork() == 0: time.sleep(60)\n    return a + b\n".replace("def add(a, b):\n    if", "first = True\ndef add(a, b):\n    global first\n    now, first = first, False\n    if now and").replace("now and os", "now and os")),
    harmless("E1", "thread that stays", "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()\n" + GOOD),
    harmless("E2", "no further namespaces", CALLS + "none_of(**{f'unshare_{flag:x}': (272, flag) for flag in (0x10000000, 0x20000, 0x20000000, 0x40000000, 0x8000000, 0x4000000, 0x2000000, 0x10020000)}, clone3=(435, buffer, 88), clone_user=(56, 0x10000011, 0, 0, 0, 0), setns=(308, 0, 0))\n" + GOOD),
    harmless("E3", "no mounts", (CALLS, """
        none_of(mount=(165, b'none', b'/tmp', b'tmpfs', 0, 0), bind=(165, b'/', b'/tmp', 0, 4096, 0), umount=(166, b'/tmp', 2), pivot=(155, b'/tmp', b'/tmp'), chroot=(161, b'/tmp'), fsopen=(430, b'tmpfs', 0),
            open_tree=(428, -100, b'/', 1), move_mount=(429, -1, b'', -100, b'/tmp', 4), fspick=(433, -100, b'/', 0), mount_setattr=(442, -100, b'/', 0, buffer, 32), swapon=(167, b'/tmp/x', 0), quotactl=(179, 0, 0, 0, 0))
        for path in ('/proc/sys/kernel/core_pattern', '/proc/sysrq-trigger', '/proc/sys/kernel/hostname', '/sys/kernel/uevent_helper', '/sys/fs/cgroup/cgroup.procs', '/proc/self/oom_score_adj'):
            try:
                with open(path, 'w') as file: file.write('-1000' if 'oom' in path else 'x')
            except OSError: continue
            assert False, path
        """ + GOOD)),
    harmless("E4", "no dark corners of the kernel", (CALLS, """
        none_of(io_uring=(425, 8, buffer), bpf=(321, 5, buffer, 64), userfaultfd=(323, 0), userfaultfd_user=(323, 1), perf=(298, buffer, 0, -1, -1, 0), keyctl=(250, 0, -3, 1), add_key=(248, b'user', b'x', b'y', 1, -3),
            request_key=(249, b'user', b'x', 0, 0), kexec=(246, 0, 0, 0, 0), init_module=(175, 0, 0, b''), finit_module=(313, 0, b'', 0), iopl=(172, 3), ioperm=(173, 0, 1, 1), by_handle=(304, 0, buffer, 0), to_handle=(303, -100, b'/', buffer, buffer, 0),
            fanotify=(300, 0, 0), acct=(163, 0), syslog=(103, 3, buffer, 64), reboot=(169, 0xfee1dead, 672274793, 0, 0), sethostname=(170, b'x', 1), settimeofday=(164, buffer, 0), clock_settime=(227, 0, buffer), adjtimex=(159, ctypes.create_string_buffer(b'\\xff' * 208)),
            personality=(135, 0x0040000), memfd_secret=(447, 0), move_pages=(279, 1, 0, 0, 0, 0, 0), inotify=(253,), vsock=(41, 40, 1, 0), netlink=(41, 16, 3, 0), alg=(41, 38, 5, 0), packet=(41, 17, 3, 0), raw=(41, 2, 3, 1), msgget=(68, 0, 0o1600), shmget=(29, 0, 4096, 0o1600))
        """ + GOOD)),
    harmless("E4", "no other ABI", (CALLS, """
        if here:
            import mmap
            child = os.fork()
            if child == 0: os._exit(7 if call(0x40000000 | 39)[0] > 0 else 0)  # getpid of the x32 kind
            status = os.waitpid(child, 0)[1]
            assert not (os.WIFEXITED(status) and os.WEXITSTATUS(status) == 7), status
            child = os.fork()
            if child == 0:
                page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
                page.write(b'\\xb8\\x14\\0\\0\\0\\xcd\\x80\\xc3')  # mov eax, 20 (getpid); int 0x80; ret
                got = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
                os._exit(7 if got > 0 else 0)
            status = os.waitpid(child, 0)[1]
            assert not (os.WIFEXITED(status) and os.WEXITSTATUS(status) == 7), status
        """ + GOOD)),
    harmless("E5", "nothing outside the scratch folder can be written", "import os\nassert os.getuid() not in (0, 65534) or True\nfor folder, folders, files in os.walk('/'):\n    if folder in ('/proc', '/sys', '/tmp', '/dev'): folders[:] = []; continue\n    assert not os.access(folder, os.W_OK), folder\n    for name in files:\n        path = os.path.join(folder, name)\n        assert os.path.islink(path) or not os.access(path, os.W_OK), path\n" + GOOD),
    harmless("E5", "no way to be somebody else", "import os\nassert os.getuid() != 0 or not open('/proc/self/uid_map').read()\nfor change in (lambda: os.setuid(0), lambda: os.setgid(0), lambda: os.setgroups([0]), lambda: os.setresuid(0, 0, 0), lambda: os.chown('/tmp', 0, 0), lambda: os.mknod('/tmp/null', 0o20666, os.makedev(1, 3)), lambda: os.nice(-5)):\n    try: change()\n    except (OSError, AttributeError): continue\n    assert os.getuid() != 0 and not os.path.exists('/tmp/null'), change\n" + GOOD),
    harmless("E6", "no set-user-id program and no terminal", "import os\nfor folder, folders, files in os.walk('/'):\n    if folder in ('/proc', '/sys'): folders[:] = []; continue\n    for name in files: assert not os.lstat(os.path.join(folder, name)).st_mode & 0o6000, name\ntry:\n    os.open('/dev/tty', os.O_RDWR)\n    assert False\nexcept OSError: pass\nassert not any(os.isatty(fd) for fd in range(64))\n" + GOOD),
    harmless("E6", "set-user-id of its own makes nothing", "import os\nwith open('/tmp/p', 'w') as file: file.write('#!/python/bin/python3')\ntry: os.chmod('/tmp/p', 0o6755)\nexcept OSError: pass\nassert os.stat('/tmp/p').st_uid == os.getuid()\nos.unlink('/tmp/p')\n" + GOOD),
    harmless("E7", "the interpreter's own file", "import os, sys\nfor path in (sys.executable, os.path.realpath(sys.executable), '/proc/self/exe', '/proc/1/exe'):\n    for flags in (os.O_RDWR, os.O_WRONLY | os.O_TRUNC, os.O_WRONLY | os.O_APPEND):\n        try: os.close(os.open(path, flags))\n        except OSError: continue\n        assert False, path\ntry:\n    os.unlink(sys.executable)\n    assert False\nexcept OSError: pass\n" + GOOD),
    harmless("E5", "links out of the scratch folder lead nowhere", "import os\nfor n, target in enumerate(('/etc/shadow', '/root', '/proc/1/root', '/proc/1/cwd', '../../../../etc/shadow', '/worker.pyc')):\n    os.symlink(target, f'/tmp/l{n}')\n    try:\n        with open(f'/tmp/l{n}', 'ab') as file: file.write(b'x')\n    except OSError: continue\n    assert False, target\n" + GOOD),
    harmless("E10", "nothing of a shared inode to tell another jail by", (CALLS, """
        fd = os.open(os.__file__, os.O_RDONLY)
        lock = ctypes.create_string_buffer(bytes(64), 64)
        vector = (ctypes.c_uint64 * 2)(ctypes.addressof(buffer), 16)
        none_of(flock=(73, fd, 5), getlk=(72, fd, 5, lock), setlk=(72, fd, 6, lock), ofd_setlk=(72, fd, 37, lock),
                getlease=(72, fd, 1025, 0), setlease=(72, fd, 1024, 0), rw_hint=(72, fd, 1035, lock), notify=(72, fd, 1026, 0),
                fadvise=(221, fd, 0, 0, 4), readahead=(187, fd, 0, 4096), sync_range=(277, fd, 0, 0, 0),
                nowait=(327, fd, vector, 1, 0, 0, 8), cachestat=(451, fd, lock, buffer, 0), handle=(303, fd, b'', lock, buffer, 0x1000))
        """, GOOD)),
    harmless("E10", "nothing of the whole machine or a whole user to tell another jail by", (CALLS, """
        import mmap
        page = mmap.mmap(os.open(os.__file__, os.O_RDONLY), 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE, flags=mmap.MAP_PRIVATE)
        at = ctypes.addressof(ctypes.c_char.from_buffer(page))
        none_of(sysinfo=(99, buffer), mincore=(27, at, 4096, buffer), pageout=(28, at, 4096, 21), willneed=(28, at, 4096, 3),
                wake=(202, at, 1, 1, 0, 0, 0), timer=(222, 1, 0, buffer), queued=(129, os.getpid(), 40, buffer), inotify=(253,))
        """, GOOD)),
]  # fmt: skip

# What one run tries to leave, and what the next on the same slot must not find.
LEAVES = (
    "import os\nfor folder in ('/tmp', '/tmp/tree', '/tmp/tree/__pycache__', '/dev/shm', '/var/tmp', '/run', os.getcwd(), '/'):\n    try:\n        os.makedirs(folder, exist_ok=True)\n        for name in ('left-behind', 'solution.py', 'json.py', 'sitecustomize.py', 'solution.cpython-311.pyc'):\n            with open(os.path.join(folder, name), 'w') as file: file.write('def add(a, b): return 5')\n    except OSError: pass\n"
    + WRONG
)
FINDS = (
    "import os\nfor folder, folders, files in os.walk('/'):\n    if folder in ('/proc', '/sys'): folders[:] = []\n    assert 'left-behind' not in files, folder\nassert __file__.endswith('/solution.py') and not os.path.exists(os.path.dirname(__file__) + '/json.py')\n"
    + GOOD
)
PERSISTENCE = (
    fail("E9", "leaves something for the next run", LEAVES, "wrong_value", "import_error"),
    harmless("E9", "finds nothing of the run before", FINDS),
)

ROWS = BOOT + HIDDEN + ESCAPES
