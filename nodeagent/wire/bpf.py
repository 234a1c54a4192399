"""Asks the kernel which BPF programs are attached to an interface (bpf(2), linux/bpf.h): netlink does not show those of tcx and netkit."""

import ctypes
import errno
import os
import platform
import struct

_SYSTEM_CALLS = {"x86_64": 321, "aarch64": 280}
_PROG_QUERY = 16
TCX_INGRESS, TCX_EGRESS, NETKIT_PRIMARY, NETKIT_PEER = 46, 47, 54, 55
"""Attach types."""
_MOST = 64
_QUERY = struct.Struct("=IIIIQI4x")  # interface, attach type, flags, flags found, address of the numbers, their count
_ATTRIBUTE_BYTES = 128


def attached_programs(interface: int, attach_type: int) -> tuple[int, ...]:
    """Returns the numbers of the programs at an interface, in their order; empty if the kernel has no such programs. Raises OSError if it
    refuses, as without CAP_NET_ADMIN."""
    number = _SYSTEM_CALLS.get(platform.machine())
    if number is None:
        return ()
    found = (ctypes.c_uint32 * _MOST)()
    query = _QUERY.pack(interface, attach_type, 0, 0, ctypes.addressof(found), _MOST)
    attribute = ctypes.create_string_buffer(query, _ATTRIBUTE_BYTES)
    if ctypes.CDLL(None, use_errno=True).syscall(number, _PROG_QUERY, attribute, _ATTRIBUTE_BYTES) < 0:
        code = ctypes.get_errno()
        if code in (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.ENODEV, errno.ENXIO):
            return ()
        raise OSError(code, os.strerror(code))
    return tuple(found[: _QUERY.unpack_from(attribute)[5]])
