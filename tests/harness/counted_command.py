"""Runs a command of nodeagent and writes what it did, as JSON, to a file.

    python tests/harness/counted_command.py FILE COMMAND [ARGUMENT]...

`dumps`: whole lists that the kernel was asked for. `asked`: requests to the agent. `nft`: sets that libnftables listed. `proc`: tables
of the network in /proc that were opened. `programs`: those that it ran. `modules`: libraries that take long to load, of those that it loaded.
"""

import atexit
import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nodeagent.cli.second_reader import SecondReader
from nodeagent.proxy.observe.admin.admin_client import AgentClient
from nodeagent.wire.netlink.socket import NetlinkSocket

SLOW = ("aiohttp", "pydantic", "yaml", "rich", "prometheus_client")


def main() -> None:
    counts: Counter[str] = Counter()

    def count(owner: type, method: str, name: str) -> None:
        counted: Callable[..., Any] = getattr(owner, method)

        def counting(*arguments: Any, **named: Any) -> Any:
            counts[name] += 1
            return counted(*arguments, **named)

        setattr(owner, method, counting)

    count(NetlinkSocket, "dump", "dumps")
    count(NetlinkSocket, "dump_datagrams", "dumps")
    count(AgentClient, "_exchange", "asked")
    count(SecondReader, "listed", "nft")
    sys.addaudithook(
        lambda event, arguments: counts.update(
            proc=event == "open" and isinstance(arguments[0], str) and arguments[0].startswith("/proc/net/"),
            programs=event == "subprocess.Popen",
        )
    )
    place, sys.argv = Path(sys.argv[1]), ["nodeagent", *sys.argv[2:]]

    def write() -> None:
        place.write_text(json.dumps({**counts, "modules": [name for name in SLOW if name in sys.modules]}))

    atexit.register(write)
    from nodeagent.cli.main import main as command  # noqa: PLC0415 - what it loads is counted

    command(prog_name="nodeagent")


if __name__ == "__main__":
    main()
