"""Work of the API server that is done in steps (`nodeagent/apiserver/machinery/loop_time.py`), done at once."""

from collections.abc import Generator
from typing import TypeVar

_Result = TypeVar("_Result")


def finished(work: Generator[None, None, _Result]) -> _Result:
    """What the work returns, however many steps it takes."""
    while True:
        try:
            next(work)
        except StopIteration as end:
            result: _Result = end.value
            return result
