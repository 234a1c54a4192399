"""`nodeagent cleanup`: the only remover of what the agent left in place."""

import asyncio

import click

from nodeagent.cli.exit_codes import CANNOT_PROGRAM, FAILED, Failure
from nodeagent.dataplane.errors import DataplaneError, NotPermitted
from nodeagent.dataplane.interface import ServiceInterface
from nodeagent.dataplane.nft.netlink import NetlinkSocket
from nodeagent.dataplane.nft.removal import remove_tables
from nodeagent.model.problem import Retryable


@click.command("cleanup")
@click.option("--interface", default="nodeagent0", show_default=True, help="Name of the service interface.")
def cleanup_command(interface: str) -> None:
    """Remove the tables `nodeagent` (ip and ip6) and the service interface. Idempotent; nothing else is touched.

    Exit codes: 0 (also when there was nothing), 1 failed, 3 no permission or a running agent owns the tables.
    """
    netlink = NetlinkSocket()
    try:
        removed = [f"table {family.value}" for family in remove_tables(netlink)]
        driver = ServiceInterface(interface)
        if asyncio.run(_remove_interface(driver)):
            removed.append(f"interface {interface}")
    except NotPermitted as error:
        raise Failure(str(error), CANNOT_PROGRAM) from error
    except PermissionError as error:
        raise Failure(f"interface {interface}: {error.strerror}: needs CAP_NET_ADMIN", CANNOT_PROGRAM) from error
    except (DataplaneError, Retryable, OSError) as error:
        raise Failure(str(error), FAILED) from error
    finally:
        netlink.close()
    click.echo(f"removed {', '.join(removed)}" if removed else "nothing of ours was here")


async def _remove_interface(driver: ServiceInterface) -> bool:
    """Whether there was one."""
    existed = await driver.exists()
    if existed:
        await driver.remove()
    return existed
