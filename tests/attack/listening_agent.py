"""A health server as an agent has it, in a process of its own: prints its port and answers until it is killed."""

import asyncio

from nodeagent.daemon.arenas import use_one_arena
from nodeagent.runtime.serving.http import HttpListeners, listening_socket
from nodeagent.runtime.serving.responses import Request, Response


def answer(_: Request) -> Response:
    """The same to everybody."""
    return Response(200, {"Content-Type": "text/plain"}, b"ok")


async def serve() -> None:
    """Until the process is killed."""
    listener = await HttpListeners(answer).listen(listening_socket("0.0.0.0", 0))
    print(listener.sockets[0].getsockname()[1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    use_one_arena()
    asyncio.run(serve())
