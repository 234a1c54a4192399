"""The daemon as `nodeagent run --config FILE` has it, except that a reload has only half a second for its source."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from nodeagent.config.load import LoadedConfig, load_config
from nodeagent.daemon.announcement import announce
from nodeagent.daemon.succession import Daemon


def load() -> LoadedConfig:
    return load_config(file=Path(sys.argv[1]), environment={}, flags={}, hostname="node-a")


async def main() -> None:
    daemon = Daemon(load, dict(os.environ), reload_seconds=0.5)
    loaded = load()
    announce(loaded)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, daemon.reload)
    await daemon.run(loaded)


asyncio.run(main())
