"""Drops privileges for ever: user, groups, capabilities, and what Landlock can forbid."""

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
LANDLOCK_CREATE_RULESET = 444
LANDLOCK_RESTRICT_SELF = 446
LANDLOCK_CREATE_RULESET_VERSION = 1
LANDLOCK_WRITES = 0b1_1111_1111_0011
"""Bits of landlock_ruleset_attr.handled_access_fs: execute, write, remove and make files; reading stays allowed."""
LANDLOCK_TRUNCATE = 1 << 14
LANDLOCK_SCOPES = 0b11
"""Bits of landlock_ruleset_attr.scoped: abstract unix sockets and signals."""
_TRUNCATE_SINCE, _SCOPES_SINCE = 3, 6
"""Landlock versions that have these: those of Linux 6.2 and 6.12."""


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _Data(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


def _become(user: int) -> None:
    """Sets user and group id; falls back to NOBODY if the user namespace does not have this id. Raises OSError."""
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
    """Becomes `user` (if run by root) without capabilities and without a way to gain any. Raises OSError. Other
    processes of that user, if there are any, can neither trace this one nor open its files."""
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() == 0:
        os.setgroups([])
        _become(user)
        libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    header, data = _Header(CAPABILITY_VERSION_3, 0), (_Data * 2)()
    if libc.capset(ctypes.byref(header), data) != 0:
        refused = ctypes.get_errno()
        # A system call filter (@privileged) forbids capset. Without ambient capabilities, exec drops them, too.
        if AGAIN not in os.environ:
            os.execve(sys.executable, sys.orig_argv, {**os.environ, AGAIN: "1"})  # noqa: S606
        libc.capget(ctypes.byref(header), data)
        if any(part.effective or part.permitted for part in data):
            raise OSError(refused, "cannot give up capabilities")
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "cannot set no_new_privs")
    _confine(libc)


def _confine(libc: ctypes.CDLL) -> None:
    """Forbids to write files, run programs and signal other processes, as far as this kernel can (landlock(7))."""
    version = libc.syscall(LANDLOCK_CREATE_RULESET, None, 0, LANDLOCK_CREATE_RULESET_VERSION)
    if version <= 0:
        return
    files = LANDLOCK_WRITES | (LANDLOCK_TRUNCATE if version >= _TRUNCATE_SINCE else 0)
    rules = _Ruleset(files, 0, LANDLOCK_SCOPES if version >= _SCOPES_SINCE else 0)
    ruleset = libc.syscall(LANDLOCK_CREATE_RULESET, ctypes.byref(rules), ctypes.sizeof(rules), 0)
    if ruleset >= 0:
        libc.syscall(LANDLOCK_RESTRICT_SELF, ruleset, 0)
        os.close(ruleset)
