"""A command of `nodeagent` as a fork on a kernel that lacks something, or without the permission that it needs."""

import ctypes
import errno
import socket
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from nodeagent.lab.net import warm_launcher
from nodeagent.wire.netlink.framing import HEADER
from nodeagent.wire.netlink.socket import NetlinkSocket
from nodeagent.wire.netlink.uapi.netlink import NETLINK_NETFILTER, NLMSG_ERROR
from nodeagent.wire.netlink.uapi.nfnetlink import NFNL_SUBSYS_CTNETLINK, NFNL_SUBSYS_NFTABLES

ENTRY = f"{__name__}:carry_out"
_BATCH_BEGIN = 0x10
_PR_CAPBSET_DROP = 24
_CAP_NET_ADMIN = 12
_CAPABILITY_VERSION = 0x20080522


def carry_out(lack: str, *descriptors: int) -> None:
    """Becomes the command; never returns. lack: a key of LACKS."""
    with LACKS[lack]():
        warm_launcher.carry_out(*descriptors)


class _Refusing:
    """A socket to a kernel without one subsystem of nfnetlink: it refuses every request for it, and every batch of such
    requests (net/netfilter/nfnetlink.c: nfnetlink_rcv_msg, nfnetlink_rcv_batch)."""

    def __init__(self, real: socket.socket, subsystem: int) -> None:
        self._real = real
        self._subsystem = subsystem
        self._answers: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def sendall(self, data: bytes) -> None:
        _, kind, _, seq, _ = HEADER.unpack_from(data)
        following = HEADER.unpack_from(data, HEADER.size + 4)[1] if kind == _BATCH_BEGIN else kind
        if following >> 8 != self._subsystem:
            self._real.sendall(data)
            return
        number = errno.EOPNOTSUPP if kind == _BATCH_BEGIN else errno.EINVAL
        answer = HEADER.pack(HEADER.size + 20, NLMSG_ERROR, 0, seq, 0)
        self._answers.append(answer + (-number).to_bytes(4, "little", signed=True) + bytes(16))

    def recv_into(self, buffer: bytearray, size: int = 0, flags: int = 0) -> int:
        if not self._answers:
            return self._real.recv_into(buffer, size, flags)
        answer = self._answers.pop(0)
        buffer[: len(answer)] = answer
        return len(answer)


def _without(subsystem: int) -> Callable[[], Any]:
    original = NetlinkSocket.__init__

    def opening(self: NetlinkSocket, protocol: int, groups: int = 0) -> None:
        original(self, protocol, groups)
        if protocol == NETLINK_NETFILTER:
            self._socket = _Refusing(self._socket, subsystem)  # type: ignore[assignment]

    return lambda: patch.object(NetlinkSocket, "__init__", opening)


def _without_netfilter() -> Any:
    original = socket.socket.__init__

    def opening(
        self: socket.socket, family: int = -1, kind: int = -1, proto: int = -1, fileno: int | None = None
    ) -> None:
        if family == socket.AF_NETLINK and proto == NETLINK_NETFILTER:
            raise OSError(errno.EPROTONOSUPPORT, "Protocol not supported")
        original(self, family, kind, proto, fileno)

    return patch.object(socket.socket, "__init__", opening)


class _WithoutCapability:
    """From inside on the process and its children lack CAP_NET_ADMIN; what opens namespaces is left."""

    def __enter__(self) -> None:
        self._patch = patch.object(warm_launcher, "exit_status", self._dropped(warm_launcher.exit_status))
        self._patch.start()

    def __exit__(self, *_: object) -> None:
        self._patch.stop()

    @staticmethod
    def _dropped(run: Callable[[str], int]) -> Callable[[str], int]:
        def after_the_drop(called: str) -> int:
            libc = ctypes.CDLL(None, use_errno=True)
            libc.prctl(_PR_CAPBSET_DROP, _CAP_NET_ADMIN, 0, 0, 0)
            header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
            sets = (ctypes.c_uint32 * 6)()
            if libc.capget(header, sets):
                raise OSError(ctypes.get_errno(), "capget")
            for place in range(3):
                sets[place] &= ~(1 << _CAP_NET_ADMIN)
            if libc.capset(header, sets):
                raise OSError(ctypes.get_errno(), "capset")
            return run(called)

        return after_the_drop


LACKS: dict[str, Callable[[], Any]] = {
    "netfilter": _without_netfilter,
    "nf_tables": _without(NFNL_SUBSYS_NFTABLES),
    "conntrack": _without(NFNL_SUBSYS_CTNETLINK),
    "permission": _WithoutCapability,
}
