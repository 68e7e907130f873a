"""The system-call filter of a jail as a BPF program, built once with the host's libseccomp through ctypes."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Collection, Iterator, Sequence

from services.runtime.errors import UserError

# The calls that a jail has. All others are answered with EPERM, whatever a kernel to come adds: jails share inodes with
# each other (the interpreter's libraries), and every call that asks about an inode rather than about its bytes is a way
# to talk there. Left out on purpose, by kind: locks, leases, watches and advice on files (flock, fadvise64, readahead,
# mincore, cachestat, sync_file_range, inotify, fanotify); other processes' memory; namespaces and mounts; kernel
# interfaces with a large attack surface (bpf, io_uring, keys, userfaultfd, perf); shared kernel objects and budgets of
# a whole user (System V and POSIX queues, timers, queued signals, aio); what tells of the whole machine (sysinfo) or
# reaches into it (sync, membarrier, priorities, processors); memory as a file and pages passed between pipes; time.
ALLOWED = (
    # files
    "read", "write", "open", "openat", "openat2", "creat", "close", "close_range", "stat", "fstat", "lstat",
    "newfstatat", "statfs", "fstatfs", "lseek", "pread64", "pwrite64", "readv", "writev", "preadv", "pwritev", "access",
    "faccessat", "faccessat2", "dup", "dup2", "dup3", "pipe", "pipe2", "sendfile", "copy_file_range", "fsync",
    "fdatasync", "truncate", "ftruncate", "fallocate", "getdents", "getdents64", "getcwd", "chdir", "fchdir", "rename",
    "renameat", "renameat2", "mkdir", "mkdirat", "rmdir", "link", "linkat", "unlink", "unlinkat", "symlink",
    "symlinkat", "readlink", "readlinkat", "chmod", "fchmod", "fchmodat", "chown", "fchown", "lchown", "fchownat",
    "umask", "utime", "utimes", "futimesat", "utimensat", "mknod", "mknodat", "setxattr", "lsetxattr", "fsetxattr",
    "getxattr", "lgetxattr", "fgetxattr", "listxattr", "llistxattr", "flistxattr", "removexattr", "lremovexattr",
    "fremovexattr",
    # waiting
    "poll", "ppoll", "select", "pselect6", "epoll_create", "epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait",
    "epoll_pwait2", "eventfd", "eventfd2", "signalfd", "signalfd4", "timerfd_create", "timerfd_settime",
    "timerfd_gettime", "pause", "nanosleep", "clock_nanosleep", "alarm", "getitimer", "setitimer", "restart_syscall",
    # memory
    "mmap", "mprotect", "munmap", "mremap", "msync", "brk", "mlock", "mlock2", "munlock", "mlockall", "munlockall",
    "pkey_alloc", "pkey_free", "pkey_mprotect",
    # processes and signals
    "fork", "vfork", "execve", "execveat", "exit", "exit_group", "wait4", "waitid", "kill", "tkill", "tgkill",
    "pidfd_send_signal", "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "rt_sigpending", "rt_sigtimedwait",
    "rt_sigsuspend", "sigaltstack", "sched_yield", "sched_getaffinity", "sched_getattr", "sched_getparam",
    "sched_getscheduler", "sched_get_priority_max", "sched_get_priority_min", "sched_rr_get_interval", "getpriority",
    "ioprio_get", "set_tid_address", "set_robust_list", "rseq", "arch_prctl", "set_thread_area", "get_thread_area",
    # who and how much
    "getpid", "getppid", "gettid", "getpgrp", "getpgid", "setpgid", "getsid", "setsid", "getuid", "geteuid", "getgid",
    "getegid", "getresuid", "getresgid", "getgroups", "setuid", "setgid", "setreuid", "setregid", "setresuid",
    "setresgid", "setgroups", "setfsuid", "setfsgid", "capget", "capset", "getrlimit", "setrlimit", "getrusage",
    "times", "uname", "getcpu", "getrandom", "time", "gettimeofday", "clock_gettime", "clock_getres",
    # of sockets that exist; which can be made is said below
    "sendto", "recvfrom", "recvmsg", "recvmmsg", "shutdown", "getsockname", "getpeername", "getsockopt", "setsockopt",
)  # fmt: skip
# Calls newer than the table of old libseccomps have one number on every architecture (449 to 456: futex_waitv,
# set_mempolicy_home_node, cachestat, fchmodat2, map_shadow_stack and futexes by another name). To a jail they do not
# exist, nor do those that no kernel has today: libc then does without.
_NEWER = range(449, 512)
_CONNECTIONS = ("bind", "listen", "accept", "accept4", "connect", "sendmsg", "sendmmsg")
_FAMILIES = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6
# F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC: a descriptor's own matters. The rest is locks, leases,
# owners of signals, hints that are kept in the inode, and the size of pipes that belong to the trusted side too.
_FCNTL = (0, 1, 2, 3, 4, 1030)
# Advice about one's own memory. The rest reads ahead, evicts, or merges pages that others have too.
_MADVISE = (0, 1, 2, 4, 8, 10, 11, 14, 15, 16, 17, 18, 19)
_PRCTL_DENIED = (62, 67)  # PR_SCHED_CORE, PR_SET_MEMORY_MERGE
_TERMINAL, _SOCKET_IOCTL = 0x54, 0x89  # kinds of ioctl; those of file systems reach keys and flags of a whole one
_INT = 0xFFFFFFFF
# Namespace flags of clone(): NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET.
_NAMESPACES = 0x00020000 | 0x02000000 | 0x04000000 | 0x08000000 | 0x10000000 | 0x20000000 | 0x40000000
# A futex that is not private to one process is found by the inode under it, also under a page of libc that is mapped
# for reading: whoever waits there can be woken from another jail, and the waker is told. Answered as if the value had
# changed (who waits looks again) and as if nobody were there (who wakes goes on); libc knows both answers.
_FUTEX_PRIVATE, _FUTEX_MASK = 0x80, 0xFF
_FUTEX_ANSWERS = ((0, errno.EAGAIN), (9, errno.EAGAIN), (1, errno.EINVAL))  # WAIT, WAIT_BITSET, WAKE

_ALLOW = 0x7FFF0000
_MASKED_EQ = 7
_OPTIMIZE = 8


class Compare(ctypes.Structure):
    """A condition on one argument of a call, in libseccomp's words."""

    _fields_ = [
        ("arg", ctypes.c_uint),
        ("op", ctypes.c_int),
        ("datum_a", ctypes.c_uint64),
        ("datum_b", ctypes.c_uint64),
    ]


def _errno(number: int) -> int:
    return 0x00050000 | number


def _library() -> ctypes.CDLL:
    try:
        lib = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    except OSError as error:
        raise UserError(
            "libseccomp is missing, so no system-call filter can be built for the sandbox",
            str(error),
            "apt-get install libseccomp2",
        ) from error
    lib.seccomp_init.restype = ctypes.c_void_p
    lib.seccomp_init.argtypes = [ctypes.c_uint32]
    lib.seccomp_attr_set.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32]
    lib.seccomp_release.argtypes = [ctypes.c_void_p]
    lib.seccomp_rule_add_array.argtypes = [
        ctypes.c_void_p,
        ctypes.c_uint32,
        ctypes.c_int,
        ctypes.c_uint,
        ctypes.POINTER(Compare),
    ]
    lib.seccomp_export_bpf.argtypes = [ctypes.c_void_p, ctypes.c_int]
    return lib


def others(denied: Collection[int], base: int = 0, bits: int = 32) -> Iterator[tuple[int, int]]:
    """All 32-bit numbers but these, as (mask, value) of aligned blocks."""
    inside = [number for number in denied if base <= number < base + (1 << bits)]
    if not inside:
        yield _INT & ~((1 << bits) - 1), base
    elif bits:
        for half in (base, base + (1 << (bits - 1))):
            yield from others(inside, half, bits - 1)


def _is(arg: int, value: int, mask: int = _INT) -> Compare:
    return Compare(arg, _MASKED_EQ, mask, value)


def allowed(network: bool) -> Iterator[tuple[str, tuple[Compare, ...]]]:
    """Every call that a jail of any backend has, always or when its arguments are so."""
    for name in (*ALLOWED, *(_CONNECTIONS if network else ())):
        yield name, ()
    yield "clone", (_is(0, 0, _NAMESPACES),)
    yield "prlimit64", (_is(0, 0),)  # of itself alone
    for mask, value in others(_PRCTL_DENIED):
        yield "prctl", (_is(0, value, mask),)
    for command in _FCNTL:
        yield "fcntl", (_is(1, command),)
    for advice in _MADVISE:
        yield "madvise", (_is(2, advice),)
    for kind in (_TERMINAL, *((_SOCKET_IOCTL,) if network else ())):
        yield "ioctl", (_is(1, kind << 8, 0xFF00),)
    for name in ("preadv2", "pwritev2"):  # with a flag they tell what is in memory already
        yield name, (_is(5, 0),)
    if network:
        for family in _FAMILIES:
            yield "socket", (_is(0, family),)
            yield "socketpair", (_is(0, family),)
    else:  # a pair of streams has no name and no address: event loops wake themselves by one
        yield "socketpair", (_is(0, 1), _is(1, 1, 0xF))


def answered() -> Iterator[tuple[str, int, tuple[Compare, ...]]]:
    """Calls that are answered with another error than EPERM, for programs that go on then; futex has both kinds."""
    # clone3's flags lie behind a pointer that a filter cannot read; libc falls back to clone.
    yield "clone3", errno.ENOSYS, ()
    yield "statx", errno.ENOSYS, ()  # it numbers the mounts of the whole machine; stat does not
    for command, error in _FUTEX_ANSWERS:
        yield "futex", error, (_is(1, command, _FUTEX_MASK),)


def private_futex() -> tuple[str, tuple[Compare, ...]]:
    """The condition under which futex is allowed where one kernel serves several jails."""
    return "futex", (_is(1, _FUTEX_PRIVATE, _FUTEX_PRIVATE),)


def program(network: bool = False) -> bytes:
    """The BPF program. Calls of a foreign (32-bit) ABI kill the caller. Raises UserError without libseccomp.

    `network`: sockets of the Unix and Internet families may be used, inside the jail's own (empty) network namespace.
    """
    lib = _library()
    context = lib.seccomp_init(_errno(errno.EPERM))
    if not context:
        raise UserError("libseccomp cannot make a filter on this machine", do="check the libseccomp2 package")
    try:
        lib.seccomp_attr_set(context, _OPTIMIZE, 2)  # a binary tree, where this libseccomp can
        named = [(name, _ALLOW, conditions) for name, conditions in (*allowed(network), private_futex())]
        named += [(name, _errno(error), conditions) for name, error, conditions in answered()]
        for name, action, conditions in named:
            number = lib.seccomp_syscall_resolve_name(name.encode())
            if number >= 0:  # negative: this architecture, or this libseccomp, has no such call
                _add(lib, context, action, number, conditions)
        for number in _NEWER:
            _add(lib, context, _errno(errno.ENOSYS), number)
        fd = os.memfd_create("seccomp")
        try:
            if lib.seccomp_export_bpf(context, fd) != 0:
                raise UserError("libseccomp could not write the filter", do="check the libseccomp2 package")
            size = os.lseek(fd, 0, os.SEEK_END)
            return os.pread(fd, size, 0)
        finally:
            os.close(fd)
    finally:
        lib.seccomp_release(context)


def _add(lib: ctypes.CDLL, context: int, action: int, number: int, conditions: Sequence[Compare] = ()) -> None:
    table = (Compare * len(conditions))(*conditions)
    code = lib.seccomp_rule_add_array(context, action, number, len(conditions), table)
    if code != 0:
        raise UserError(f"libseccomp refused a rule (error {-code})", do="check the libseccomp2 package")
