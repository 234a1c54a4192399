"""Rights given away for ever: user, groups and capabilities."""

import ctypes
import errno
import logging
import os
import sys

logger = logging.getLogger(__name__)

NOBODY = 65534

PR_SET_DUMPABLE = 4
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
PR_SET_NO_NEW_PRIVS = 38
CAPABILITY_VERSION_3 = 0x20080522
AGAIN = "NODEAGENT_DNS_AGAIN"


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Data(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def _become(user: int) -> None:
    """Raises OSError. A user namespace may have too few users for ours."""
    try:
        os.setresgid(user, user, user)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        logger.warning("there is no user %d in this user namespace: names are answered as user %d", user, NOBODY)
        user = NOBODY
        os.setresgid(user, user, user)
    os.setresuid(user, user, user)


def drop_privileges(user: int) -> None:
    """Become `user` (if we are root) without capabilities, and never gain any. Raises OSError. Others of that user, if there
    are any, can neither trace us nor open our files."""
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() == 0:
        os.setgroups([])
        _become(user)
        libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
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
