"""The system-call filter of a jail as a BPF program, built once with the host's libseccomp through ctypes."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator

from services.runtime.errors import UserError

# Answered with EPERM. Kinds: other processes' memory, namespaces and mounts, kernel interfaces with a large attack
# surface, network (also over kinds of sockets that a network namespace does not cover), shared kernel objects, time.
DENIED = (
    "ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "process_mrelease", "pidfd_getfd",
    "pidfd_open", "kcmp", "get_robust_list",
    "unshare", "setns", "mount", "umount2", "pivot_root", "chroot", "open_tree", "move_mount", "fsopen", "fsconfig",
    "fsmount", "fspick", "mount_setattr",
    "bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter", "io_uring_register",
    "keyctl", "add_key", "request_key", "init_module", "finit_module", "delete_module", "kexec_load",
    "kexec_file_load",
    "shmget", "shmat", "shmctl", "semget", "semop", "semctl", "semtimedop", "msgget", "msgsnd", "msgrcv", "msgctl",
    "mq_open", "mq_unlink",
    "inotify_init", "inotify_init1", "fanotify_init", "fanotify_mark", "name_to_handle_at", "open_by_handle_at",
    "personality", "quotactl", "quotactl_fd", "reboot", "swapon", "swapoff", "acct", "syslog", "sethostname",
    "setdomainname", "iopl", "ioperm",
    "clock_settime", "settimeofday", "adjtimex", "clock_adjtime", "lookup_dcookie", "nfsservctl", "vhangup",
    "migrate_pages", "move_pages", "mbind", "set_mempolicy", "get_mempolicy", "set_mempolicy_home_node",
    # Memory that looks like a file, pages passed between pipes, a table of the processor, old interfaces.
    "memfd_secret", "memfd_create", "vmsplice", "splice", "tee", "modify_ldt", "remap_file_pages", "uselib", "ustat",
    "sysfs", "_sysctl", "seccomp",
    "landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self",
    # What reaches beyond the caller: the whole machine's disk queues and processors, host-wide budgets of requests,
    # and attributes of neighbours of the same user, of whom one is the fork server that serves the next run.
    "sync", "syncfs", "membarrier", "io_setup", "io_submit", "io_getevents", "io_pgetevents", "io_cancel", "io_destroy",
    "setpriority", "ioprio_set", "sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr",
)  # fmt: skip
# Calls newer than libseccomp's table (from statmount on) have one number on every architecture; to a jail they do not
# exist yet, also those that no kernel has today.
_NEWER = range(457, 512)
_SOCKETS = ("socket", "socketpair")
_CONNECTIONS = ("bind", "listen", "accept", "accept4", "connect")
_FAMILIES = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6
# fcntl commands: F_SETSIG, F_SETLEASE, F_NOTIFY, F_SETPIPE_SZ (the pipes belong to the trusted side too).
_FCNTL = (10, 1024, 1026, 1031)
_PR_SCHED_CORE = 62
_INT = 0xFFFFFFFF
# Namespace flags of clone(): NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET.
_NAMESPACES = (0x00020000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000)

_ALLOW = 0x7FFF0000
_EPERM, _ENOSYS = 1, 38
_NE, _GT, _MASKED_EQ = 1, 6, 7
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


def rules(network: bool) -> Iterator[tuple[str, Compare | None]]:
    """Every call that is answered with EPERM, always (None) or when one of its arguments is so; for every backend."""
    for name in (*DENIED, *(() if network else _SOCKETS + _CONNECTIONS)):
        yield name, None
    for flag in _NAMESPACES:
        yield "clone", Compare(0, _MASKED_EQ, flag, flag)
    yield "prlimit64", Compare(0, _NE, 0, 0)  # of another process, named by its number
    yield "prctl", Compare(0, _MASKED_EQ, _INT, _PR_SCHED_CORE)
    for command in _FCNTL:
        yield "fcntl", Compare(1, _MASKED_EQ, _INT, command)
    if network:
        for name in _SOCKETS:
            for family in set(range(max(_FAMILIES) + 1)) - set(_FAMILIES):
                yield name, Compare(0, _MASKED_EQ, _INT, family)
            yield name, Compare(0, _GT, max(_FAMILIES), 0)


def program(network: bool = False) -> bytes:
    """The BPF program. Calls of a foreign (32-bit) ABI kill the caller. Raises UserError without libseccomp.

    `network`: sockets of the Unix and Internet families may be used, inside the jail's own (empty) network namespace.
    """
    lib = _library()
    context = lib.seccomp_init(_ALLOW)
    if not context:
        raise UserError("libseccomp cannot make a filter on this machine", do="check the libseccomp2 package")
    try:
        lib.seccomp_attr_set(context, _OPTIMIZE, 2)  # a binary tree, where this libseccomp can
        for name, compare in rules(network):
            number = lib.seccomp_syscall_resolve_name(name.encode())
            if number >= 0:  # negative: this architecture, or this libseccomp, has no such call
                _add(lib, context, _errno(_EPERM), number, compare)
        # clone3's flags lie behind a pointer that a filter cannot read; libc falls back to clone.
        for number in (lib.seccomp_syscall_resolve_name(b"clone3"), *_NEWER):
            _add(lib, context, _errno(_ENOSYS), number)
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


def _add(lib: ctypes.CDLL, context: int, action: int, number: int, compare: Compare | None = None) -> None:
    pointer = ctypes.byref(compare) if compare is not None else None
    code = lib.seccomp_rule_add_array(context, action, number, 0 if compare is None else 1, pointer)
    if code != 0:
        raise UserError(f"libseccomp refused a rule (error {-code})", do="check the libseccomp2 package")
