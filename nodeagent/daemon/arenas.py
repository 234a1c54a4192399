"""Where the C library takes memory of more than 512 bytes from: element dictionaries, messages to the kernel, answers."""

import ctypes
from typing import Final

M_ARENA_MAX: Final = -8
"""From glibc's malloc.h."""


def use_one_arena() -> None:
    """Makes all threads allocate from the same arena (mallopt(3)).

    By default each thread keeps the memory that it freed: a table that a worker thread wrote leaves holes beside the
    loop's. Only one thread at a time runs Python anyway. Other C libraries have no such setting.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(M_ARENA_MAX, 1)
