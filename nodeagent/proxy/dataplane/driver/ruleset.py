"""The ruleset of a network namespace through one socket: commit a transaction, dump objects, read the generation.

The socket is the owner of an owned table, so the agent has exactly one per process for its whole life. It is
close-on-exec (Python's default): a child that held it would keep the table owned.
"""

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from threading import Lock
from types import TracebackType
from typing import Final, TypeVar

from nodeagent.proxy.dataplane.driver.generations import OwnSteps
from nodeagent.proxy.dataplane.driver.transaction import Message, Transaction
from nodeagent.proxy.dataplane.errors import (
    CommitRejected,
    DumpInterrupted,
    KernelBusy,
    KernelUnclear,
    NotPermitted,
    Rejection,
    StaleGeneration,
    Unsupported,
)
from nodeagent.wire.netlink.equal_answers import EqualAnswers
from nodeagent.wire.netlink.framing import Received, Request
from nodeagent.wire.netlink.netfilter import GENMSG_LENGTH, message_type
from nodeagent.wire.netlink.nf_tables.batch import entry_at, request
from nodeagent.wire.netlink.nf_tables.ruleset_objects import read_generation
from nodeagent.wire.netlink.socket import (
    OUT_OF_MEMORY,
    REPLY_SECONDS,
    DumpInterruptedError,
    NetlinkSocket,
    errno_of,
    is_temporary,
    offset_at_fault,
    retry,
    retry_briefly,
)
from nodeagent.wire.netlink.uapi.netlink import NETLINK_NETFILTER, NLMSG_ERROR
from nodeagent.wire.netlink.uapi.nf_tables import NFT_MSG_DELSETELEM, NFT_MSG_GETGEN
from nodeagent.wire.netlink.uapi.nfnetlink import NFNL_SUBSYS_NFTABLES

T = TypeVar("T")

REPLY_BUFFER: Final = 8 << 20
READ_ATTEMPTS = 20
_BATCH = "the batch"
_ELEMENT_GONE = message_type(NFNL_SUBSYS_NFTABLES, NFT_MSG_DELSETELEM)
_NO_CAPABILITY = "nf_tables: not permitted: run as root or with CAP_NET_ADMIN"
_NO_NF_TABLES = "nf_tables: this kernel does not have it (CONFIG_NF_TABLES): try modprobe nf_tables"
OWNED_BY_ANOTHER = "table nodeagent is owned by another process: stop the nodeagent that runs here first"


class TypedErrors:
    """Converts errors of the socket, and of the functions that parse its messages, to DataplaneErrors.

    A class, because a pass enters it twenty times, and a generator takes five calls for each.
    """

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, OSError) or isinstance(error, FileNotFoundError):
            return
        if isinstance(error, TimeoutError):
            raise KernelUnclear(f"no answer from the kernel within {REPLY_SECONDS:.0f} s") from error
        if isinstance(error, DumpInterruptedError):
            raise DumpInterrupted("others changed the ruleset while it was read") from error
        if error.errno == errno.EBUSY:
            raise DumpInterrupted("an earlier dump has not been read to its end") from error
        if error.errno == errno.EPERM:
            raise NotPermitted(_NO_CAPABILITY) from error
        if error.errno == errno.EPROTONOSUPPORT:
            raise Unsupported(_NO_NF_TABLES) from error
        raise (KernelBusy if is_temporary(error) else KernelUnclear)(f"netlink: {error.strerror}") from error


_TYPED = TypedErrors()


def typed_errors() -> TypedErrors:
    """Returns the context in which errors are converted."""
    return _TYPED


def repeated(work: Callable[[], T], attempts: int = READ_ATTEMPTS) -> T:
    """Returns the result of `work`; repeats it with growing pauses while the kernel is busy, or others' changes interrupt it."""
    return retry(work, attempts, lambda error: isinstance(error, KernelBusy))


class Ruleset:
    """Reads and changes the nf_tables ruleset of the kernel, by one socket. Blocking; a call returns when the kernel has
    answered. Big transactions belong in a worker thread.

    One call at a time; threads wait for each other. steps: which generations of the ruleset our own commits made.

    Raises NotPermitted if the process may not use nf_tables at all, and Unsupported if the kernel does not have it.
    """

    def __init__(self) -> None:
        with typed_errors():
            self._socket = NetlinkSocket(NETLINK_NETFILTER)
        self._socket.enlarge_receive_buffer(REPLY_BUFFER)
        self._send_bytes = 0
        self._lock = Lock()
        self.steps = OwnSteps()

    def close(self) -> None:
        """Closes the socket, which gives up the ownership of owned tables."""
        self._socket.close()

    @property
    def port(self) -> int:
        """The number by which the kernel knows the owner of a table."""
        return self._socket.port

    def commit(self, transaction: Transaction, known: int | None = None) -> list[bytes]:
        """Applies all of a transaction, or nothing. Returns the elements whose deletion the kernel echoed (NLM_F_ECHO), as they
        were: the attributes, one message each.

        known: commit only if the ruleset differs from this generation by nothing but commits of ours; then the new generation is
        known to be the next one.

        Tries again a few times what the kernel refuses for lack of memory. Raises CommitRejected with every operation at fault,
        NotPermitted, StaleGeneration, or KernelUnclear if it may have been applied (the caller reads back).
        """
        if transaction.empty:
            return []
        with self._lock:
            generation = None if known is None else self.steps.follow(known)
            with typed_errors():
                echoes = retry_briefly(lambda: self._commit(transaction, generation))
            # A transaction without effect makes no generation.
            if generation is not None and self._ask_generation() != generation:
                self.steps.add(generation)
            return echoes

    def _commit(self, transaction: Transaction, generation: int | None) -> list[bytes]:
        first = self._socket.reserve(len(transaction.messages) + 2)
        batch = transaction.encode(first, generation)
        self._make_room(len(batch))
        try:
            self._socket.send(batch)
        except OSError as error:
            if error.errno != errno.EMSGSIZE:
                raise
            raise KernelUnclear(f"a transaction of {len(batch)} bytes does not fit net.core.wmem_max") from error
        try:
            rejections, echoes = self._answers(first, transaction.messages)
        except OSError as error:
            if not is_temporary(error):
                raise
            raise KernelBusy(f"netlink: whether a transaction was applied is not known: {error.strerror}") from error
        if rejections:
            for item in rejections:
                if item.errno in OUT_OF_MEMORY:
                    raise OSError(item.errno, f"{item.reason}, for {item.about}")
            if generation is not None and rejections[0].about == _BATCH and rejections[0].errno == errno.ERESTART:
                raise StaleGeneration("another process changed the ruleset first")
            if all(item.errno == errno.EPERM for item in rejections):
                raise NotPermitted(_NO_CAPABILITY if rejections[0].about == _BATCH else OWNED_BY_ANOTHER)
            raise CommitRejected(tuple(rejections))
        return echoes

    def dump(self, kind: int, family: int, body: bytes = b"") -> Iterator[memoryview]:
        """Yields the attributes of every object; the memory is valid only until the next step.

        Raises FileNotFoundError if the table or set does not exist, DumpInterrupted at the end of a dump that a
        change interrupted, KernelUnclear if the kernel could not answer.
        """
        with self._lock, typed_errors():
            for found in self._socket.dump(request(kind, family, body)):
                yield found[GENMSG_LENGTH:]

    def fetch(self, kind: int, family: int, body: bytes) -> Iterator[memoryview]:
        """Returns the attributes of every object a request names, one message each.

        Raises FileNotFoundError if one of them does not exist, KernelUnclear if the kernel could not answer.
        """
        with self._lock, typed_errors():
            return iter(
                [memoryview(found)[GENMSG_LENGTH:] for found in self._socket.fetch(request(kind, family, body))]
            )

    def fetch_equal(self, kind: int, family: int, body: bytes, count: int, answers: EqualAnswers) -> memoryview | None:
        """Returns the messages of a `fetch` for `count` objects side by side, if each has the size of `answers`; valid until these are
        used again. None if not, or if the kernel did not answer for all: ask by `fetch`.

        Raises KernelUnclear if the kernel could not answer.
        """
        with self._lock, typed_errors():
            return self._socket.fetch_equal(request(kind, family, body), count, answers)

    def count_confirmed(
        self, kind: int, family: int, body: bytes, start: int, expected: Iterable[tuple[bytes, bytes]], *, exact: bool
    ) -> int:
        """Returns how many of the objects that a request names, counted from the first, are answered as expected.

        expected: (the bytes at `start` of each answer, its last bytes); exact: nothing is between these.
        Raises KernelUnclear if the kernel could not answer.
        """
        with self._lock, typed_errors():
            return self._socket.count_confirmed(request(kind, family, body), start, expected, exact=exact)

    def get(self, kind: int, family: int, body: bytes) -> memoryview:
        """Returns the attributes of one object. Raises FileNotFoundError if it does not exist."""
        with self._lock:
            return memoryview(bytes(self._ask(request(kind, family, body))))[GENMSG_LENGTH:]

    def generation(self) -> int:
        """Returns the ruleset generation of this network namespace: any change of any table raises it (8 µs)."""
        with self._lock:
            return self._ask_generation()

    def _ask_generation(self) -> int:
        return read_generation(self._ask(request(NFT_MSG_GETGEN, 0)))

    def _ask(self, asked: Request) -> memoryview:
        """Returns the answer. A kernel that has nfnetlink without nf_tables refuses every request with EINVAL (nfnetlink_rcv_msg)."""
        with typed_errors():
            try:
                return self._socket.ask(asked)
            except OSError as error:
                if error.errno == errno.EINVAL:
                    raise Unsupported(_NO_NF_TABLES) from error
                raise

    def _answers(self, first: int, operations: list[Message]) -> tuple[list[Rejection], list[bytes]]:
        """Returns errors and echoes; reads until the last operation is answered or the batch itself is refused.

        A commit that fails after all operations were accepted is reported on the batch's own sequence number.
        """
        rejections: list[Rejection] = []
        echoes: list[bytes] = []
        for answer in self._socket.acknowledgements(first, first + len(operations), echoes=True):
            if answer.type != NLMSG_ERROR:
                if answer.type == _ELEMENT_GONE:  # the kernel reports the new generation, too
                    echoes.append(bytes(answer.body[GENMSG_LENGTH:]))
                continue
            code = errno_of(answer)
            if answer.seq == first:
                rejections.append(Rejection(_BATCH, code, os.strerror(code)))
                break
            if code:
                rejections.append(_rejection(operations[answer.seq - first - 1], code, answer))
        return rejections, echoes

    def _make_room(self, size: int) -> None:
        """Enlarges the send buffer. A batch cannot span datagrams, so the buffer must hold all of it (twice: the kernel's bookkeeping)."""
        wanted = max(2 * size, 1 << 20)
        if wanted > self._send_bytes:
            self._socket.enlarge_send_buffer(wanted)
            self._send_bytes = wanted


def read_objects(
    ruleset: Ruleset,
    kind: int,
    family: int,
    parse: Callable[[memoryview], T],
    body: bytes = b"",
    attempts: int = READ_ATTEMPTS,
) -> list[T]:
    """Returns what `parse` makes of each object of a dump, which is repeated like `repeated`. Raises as `Ruleset.dump` does."""

    def read() -> list[T]:
        with typed_errors():
            return [parse(data) for data in ruleset.dump(kind, family, body)]

    return repeated(read, attempts)


def _rejection(item: Message, code: int, answer: Received) -> Rejection:
    """Names the element or expression at fault, if the extended acknowledgement has the bad attribute's offset.

    An interval of a lone field is two elements, but one key, so the key named may be one further on.
    """
    reason = os.strerror(code)
    offset = offset_at_fault(answer)
    at = None if offset is None else entry_at(item.body, offset)
    if item.keys:
        lone = item.keys[0] if len(item.keys) == 1 else None
        key = item.keys[at] if at is not None and at < len(item.keys) else lone
        return Rejection(item.about, code, reason, item.set, key)
    if item.expressions and at is not None and at < len(item.expressions):
        reason = f"{reason} (expression {item.expressions[at]})"
    return Rejection(item.about, code, reason)
