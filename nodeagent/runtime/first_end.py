"""Runs tasks that belong together until the first of them ends."""

import asyncio
from collections.abc import Sequence


async def until_one_ends(tasks: Sequence["asyncio.Task[None]"]) -> None:
    """Waits until a task ends, then cancels the others and waits for their end. Raises the error of an ended task, the first in the
    order of `tasks`."""
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in tasks:
        if task in done:
            task.result()
