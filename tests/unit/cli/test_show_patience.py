"""`nodeagent show` while somebody changes rules: reading is repeated, and not for ever."""

import pytest

from nodeagent.cli.read_retries import READ_ATTEMPTS, read_with_retries
from nodeagent.proxy.dataplane.errors import KernelUnclear


class Kernel:
    """Interrupts so many readings."""

    def __init__(self, interruptions: int) -> None:
        self.interruptions = interruptions
        self.readings = 0

    def read(self) -> str:
        self.readings += 1
        if self.readings <= self.interruptions:
            raise KernelUnclear("the dump was interrupted")
        return "read"


@pytest.mark.parametrize("interruptions", [0, 1, READ_ATTEMPTS - 1])
def test_an_interrupted_reading_is_repeated_after_a_pause(interruptions: int) -> None:
    kernel, pauses = Kernel(interruptions), list[float]()
    assert read_with_retries(kernel.read, pauses.append) == "read"
    assert (kernel.readings, len(pauses)) == (interruptions + 1, interruptions)


def test_show_gives_up_in_the_end() -> None:
    kernel = Kernel(1000)
    with pytest.raises(KernelUnclear):
        read_with_retries(kernel.read, lambda _: None)
    assert kernel.readings == READ_ATTEMPTS
