"""`nodeagent cleanup`: removes from the kernel what the agent left in place; no other command does."""

import asyncio
from contextlib import closing

import click

from nodeagent.cli.cleanup_kube_proxy import clean_up_kube_proxy
from nodeagent.cli.examples import examples
from nodeagent.cli.exit_codes import CANNOT_PROGRAM, FAILED, Failure
from nodeagent.model.problem import Retryable
from nodeagent.names.feed.cluster_dns import end_process
from nodeagent.proxy.dataplane.driver.removal import remove_tables, require_removable
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset
from nodeagent.proxy.dataplane.errors import DataplaneError, NotPermitted, Unsupported
from nodeagent.proxy.dataplane.interface import ServiceInterface


@click.command(
    "cleanup",
    epilog=examples(
        "nodeagent cleanup",
        "nodeagent cleanup --of kube-proxy --dry-run      what another proxy left",
        "nodeagent cleanup --of kube-proxy",
    ),
)
@click.option("--interface", default="nodeagent0", show_default=True, help="Name of the service interface.")
@click.option("--of", "other", type=click.Choice(["kube-proxy"]), help="Remove only what another proxy left.")
@click.option("--dry-run", is_flag=True, help="With --of: print what would be removed, change nothing.")
@click.option("--force", is_flag=True, help="With --of: also if no agent has programmed anything here.")
def cleanup_command(interface: str, other: str | None, *, dry_run: bool, force: bool) -> None:
    """Remove the tables `nodeagent` (ip and ip6) and the service interface, and end the DNS process.
    May be repeated; changes nothing else.

    With --of kube-proxy: remove the leftovers of its nftables, iptables and ipvs modes instead; needs the agent's tables.

    Refuses, also for the tables, if the interface cannot be recognised as the agent's.

    Exit codes: 0 (also if there was nothing to remove), 1 failed or refused, 3 no permission, no nf_tables, or a running agent owns
    the tables.
    """
    if other is not None:
        clean_up_kube_proxy(dry_run=dry_run, force=force)
        return
    if dry_run or force:
        raise click.UsageError(f"{'--dry-run' if dry_run else '--force'} needs --of")
    try:
        with closing(Ruleset()) as netlink:
            require_removable(netlink)
            # The interface goes first: a ClusterIP that is local without rules would lead to the host's own daemons.
            removed = [f"interface {interface}"] if asyncio.run(_remove_interface(ServiceInterface(interface))) else []
            removed += [f"table {family.value}" for family in remove_tables(netlink)]
            removed += ["DNS process"] if asyncio.run(end_process()) else []
    except (NotPermitted, Unsupported) as error:
        raise Failure(str(error), CANNOT_PROGRAM) from error
    except PermissionError as error:
        raise Failure(f"interface {interface}: {error.strerror}: needs CAP_NET_ADMIN", CANNOT_PROGRAM) from error
    except (DataplaneError, Retryable, OSError) as error:
        raise Failure(str(error), FAILED) from error
    click.echo(f"removed {', '.join(removed)}" if removed else "nothing of ours was here")


async def _remove_interface(driver: ServiceInterface) -> bool:
    """Removes the interface; returns whether it existed."""
    existed = await driver.exists()
    await driver.remove()
    return existed
