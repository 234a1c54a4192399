"""Where the C library takes memory of more than 512 bytes from: element dictionaries, messages to the kernel, answers."""

import ctypes
from typing import Final

M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
M_ARENA_MAX: Final = -8
"""From glibc's malloc.h."""
OF_ITS_OWN_BYTES: Final = 1 << 17
"""What is larger gets pages of its own, which go back to the kernel when it is freed. That is the C library's default, but it raises it to the
largest block that was freed: after a list of 20 MB, the tables of elements grew within one heap and left holes."""


def use_one_arena() -> None:
    """Makes all threads allocate from the same arena (mallopt(3)).

    By default each thread keeps the memory that it freed: a table that a worker thread wrote leaves holes beside the
    loop's. Only one thread at a time runs Python anyway. Large blocks stay out of it. Other C libraries have no such settings.
    """
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):
        library.mallopt(M_ARENA_MAX, 1)
        library.mallopt(M_MMAP_THRESHOLD, OF_ITS_OWN_BYTES)
        library.mallopt(M_TRIM_THRESHOLD, OF_ITS_OWN_BYTES)
