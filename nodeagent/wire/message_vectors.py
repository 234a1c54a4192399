"""Many datagrams in one system call: recvmmsg(2) and sendmmsg(2), which Python's socket module does not have."""

import ctypes


class DatagramPiece(ctypes.Structure):
    """struct iovec."""

    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


class DatagramHeader(ctypes.Structure):
    """struct msghdr. In mmsghdr the size follows it."""

    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_size", ctypes.c_uint32),
        ("pieces", ctypes.c_void_p),
        ("piece_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_size", ctypes.c_size_t),
        ("flags", ctypes.c_int),
    )


class DatagramMessage(ctypes.Structure):
    """struct mmsghdr. size: bytes received or sent, written by the kernel."""

    _fields_ = (("header", DatagramHeader), ("size", ctypes.c_uint32))


_libc = ctypes.CDLL(None)
receive_many, send_many = _libc.recvmmsg, _libc.sendmmsg
for _call in (receive_many, send_many):
    _call.restype = ctypes.c_int
receive_many.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int, ctypes.c_void_p)
send_many.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int)
