"""Confines itself, then becomes a command: inside :mod:`flashcore.plugins.judge.sandbox`. Imports nothing of ours.

``confine.py SETTINGS COMMAND…``: SETTINGS is a JSON object: ``limits`` of :mod:`resource` by name, a file descriptor
``confined`` that gets a byte when the command may begin, which cannot write to it, and ``readable``, the paths to see,
if this process must make its namespaces itself. Exit code 125: it could not.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CANNOT = 125
_NEW_USER = 0x10000000
_NAMESPACES = _NEW_USER | 0x6C020000  # mount, uts, ipc, pid, network
_RDONLY, _NOSUID, _NODEV, _BIND, _REC, _PRIVATE = 1, 2, 4, 4096, 16384, 1 << 18
_NO_NEW_PRIVILEGES, _DROP, _DEATH, _SECUREBITS, _NOROOT = 38, 24, 1, 28, 0x2F
#: SCMP_ACT_ALLOW, _ERRNO with EPERM and with ENOSYS, SCMP_CMP_MASKED_EQ.
_ALLOW, _REFUSE, _UNKNOWN, _MASKED_EQUAL = 0x7FFF0000, 0x00050001, 0x00050026, 7
#: What no compiler needs, and kernels have had holes in.
_REFUSED = """
mount umount2 pivot_root chroot unshare setns fsopen fsmount move_mount open_tree ptrace process_vm_readv
process_vm_writev kcmp pidfd_getfd bpf perf_event_open userfaultfd keyctl add_key request_key io_uring_setup
io_uring_enter io_uring_register kexec_load kexec_file_load init_module finit_module delete_module
open_by_handle_at name_to_handle_at socket mknod mknodat quotactl acct swapon reboot syslog sched_setaffinity
memfd_create memfd_secret shmget socketpair
"""
_MOUNT_SETATTR, _HERE, _RECURSIVE = 442, -100, 0x8000  # a number of Linux 5.12, AT_FDCWD, AT_RECURSIVE
_DETACH, _PIVOT_ROOT = 2, {"x86_64": 155, "aarch64": 41}.get(os.uname().machine, -1)
_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: Any) -> None:
    if getattr(_libc, name)(*arguments):
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")


def _go_on_in_child() -> None:
    """This process ends as its child does."""
    if child := os.fork():
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os._exit(code if code >= 0 else 128 - code)


def namespaces(readable: Sequence[str], size: int) -> None:
    """Leaves this process without network, other processes, users, devices, and files but ``readable``, read-only, and
    an empty ``/tmp``."""
    user, group = os.getuid(), os.getgid()
    _call("unshare", _NAMESPACES)
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    _go_on_in_child()  # the child is the first process of the namespace, with whose end all end
    _call("prctl", _DEATH, signal.SIGKILL)
    _go_on_in_child()  # what the command's process does to itself cannot outlive it
    _call("mount", b"none", b"/", None, _REC | _PRIVATE, None)
    room = b"size=%d,nr_inodes=32k,mode=755" % size
    _call("mount", b"tmpfs", b"/tmp", b"tmpfs", _NOSUID | _NODEV, room)  # the root
    os.mkdir("/tmp/old")
    os.chdir("/tmp")
    _call("syscall", _PIVOT_ROOT, b".", b"old")
    for name in ("/proc", "/tmp"):
        os.mkdir(name)
    _call("mount", b"tmpfs", b"/tmp", b"tmpfs", _NOSUID | _NODEV, room)
    read_only = (ctypes.c_uint64 * 4)(_RDONLY | _NOSUID | _NODEV)
    device = (ctypes.c_uint64 * 4)(_RDONLY | _NOSUID)  # its mode and owner are the host's
    for path in (*readable, "/dev/null", "/dev/zero", "/dev/urandom"):
        is_folder = os.path.isdir(f"/old{path}")
        os.makedirs(path if is_folder else os.path.dirname(path), exist_ok=True)
        if not is_folder:
            Path(path).touch()
        place = os.fsencode(path)
        _call("mount", b"/old" + place, place, None, _BIND | _REC, None)
        change = device if path.startswith("/dev") else read_only
        _call("syscall", _MOUNT_SETATTR, _HERE, place, _RECURSIVE, change, ctypes.sizeof(change))
    _call("mount", b"proc", b"/proc", b"proc", _RDONLY | _NOSUID | _NODEV, None)  # root may write to /proc/sys
    for number, name in (("", "fd"), ("/0", "stdin"), ("/1", "stdout"), ("/2", "stderr")):
        os.symlink(f"/proc/self/fd{number}", f"/dev/{name}")
    _call("umount2", b"/old", _DETACH)
    _call("syscall", _MOUNT_SETATTR, _HERE, b"/", 0, read_only, ctypes.sizeof(read_only))
    os.chdir("/tmp")
    _call("prctl", _SECUREBITS, _NOROOT, 0, 0, 0)
    for capability in range(64):
        _libc.prctl(_DROP, capability, 0, 0, 0)


def restrict(limits: dict[str, int], *, required: bool) -> None:
    """Sets limits, and refuses system calls by libseccomp, which must be there if it is ``required``."""
    for name, most in limits.items():
        resource.setrlimit(getattr(resource, name), (most, most))
    _call("prctl", _NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    try:
        library = ctypes.CDLL("libseccomp.so.2")
    except OSError:
        if required:
            raise
        return
    library.seccomp_init.restype = ctypes.c_void_p
    rules = ctypes.c_void_p(library.seccomp_init(_ALLOW))
    for name in _REFUSED.split():
        if (number := library.seccomp_syscall_resolve_name(name.encode())) >= 0:
            library.seccomp_rule_add(rules, _REFUSE, number, 0)
    new_user = (ctypes.c_uint64 * 3)(_MASKED_EQUAL << 32, _NEW_USER, _NEW_USER)  # argument 0
    library.seccomp_rule_add_array(rules, _REFUSE, library.seccomp_syscall_resolve_name(b"clone"), 1, new_user)
    library.seccomp_rule_add(rules, _UNKNOWN, library.seccomp_syscall_resolve_name(b"clone3"), 0)  # has clone instead
    if library.seccomp_load(rules):
        raise OSError("seccomp_load: the filter was not accepted")


def main() -> None:
    settings, command = json.loads(sys.argv[1]), sys.argv[2:]
    try:
        makes = "readable" in settings
        _call("prctl", _DEATH, signal.SIGKILL)
        processors = sorted(os.sched_getaffinity(0))  # others are for candidates that are measured meanwhile
        os.sched_setaffinity(0, processors[-max(len(processors) // 4, 1) :])
        os.nice(19)
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000")  # before the judge
        if makes:
            namespaces(settings["readable"], settings["size"])
        restrict(settings["limits"], required=makes)
        os.write(settings["confined"], b"1")
        os.close(settings["confined"])
    except OSError as error:
        print(f"cannot confine: {error}", file=sys.stderr)
        os._exit(CANNOT)
    with contextlib.suppress(OSError):
        os.execv(command[0], command)
    os._exit(127)


if __name__ == "__main__":
    main()
