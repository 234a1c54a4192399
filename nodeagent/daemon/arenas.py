"""From where the C library takes what is bigger than 512 bytes: element dictionaries, messages to the kernel, answers."""

import ctypes
from typing import Final

M_ARENA_MAX: Final = -8
"""Of glibc's malloc.h."""


def use_one_arena() -> None:
    """Let all threads take memory from the same place (mallopt(3)).

    By default each thread keeps what it has freed to itself: a table that one worker thread wrote stays as holes beside
    what the loop has freed. Only one thread at a time runs Python anyway. Other C libraries have no such setting.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(M_ARENA_MAX, 1)
