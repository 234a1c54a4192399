"""Rights given away for ever: user, groups and capabilities."""

import ctypes
import os
import sys

PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
PR_SET_NO_NEW_PRIVS = 38
CAPABILITY_VERSION_3 = 0x20080522
AGAIN = "NODEAGENT_DNS_AGAIN"


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Data(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def drop_privileges(user: int) -> None:
    """Become `user` (if we are root) without capabilities, and never gain any. Raises OSError."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header, data = _Header(CAPABILITY_VERSION_3, 0), (_Data * 2)()
    if libc.capset(ctypes.byref(header), data) != 0:
        refused = ctypes.get_errno()
        # A filter of system calls forbids capset (@privileged); without ambient ones a new program has none either.
        if AGAIN not in os.environ:
            os.execve(sys.executable, sys.orig_argv, {**os.environ, AGAIN: "1"})  # noqa: S606
        libc.capget(ctypes.byref(header), data)
        if any(part.effective or part.permitted for part in data):
            raise OSError(refused, "cannot give up capabilities")
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot set no_new_privs")
