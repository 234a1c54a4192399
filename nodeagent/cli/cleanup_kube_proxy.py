"""`nodeagent cleanup --of kube-proxy`: removes the rules that kube-proxy left."""

import os
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import click

from nodeagent.cli.exit_codes import CANNOT_PROGRAM, FAILED, Failure
from nodeagent.cli.kernel_reading import kernel_failures
from nodeagent.model.addresses import Family
from nodeagent.proxy.dataplane.driver.kernel_table import KernelTable
from nodeagent.proxy.dataplane.driver.ruleset import Ruleset
from nodeagent.proxy.dataplane.errors import NotPermitted
from nodeagent.proxy.dataplane.kube_proxy.ipset import Sets
from nodeagent.proxy.dataplane.kube_proxy.iptables_legacy import InstalledTools, LegacyTables
from nodeagent.proxy.dataplane.kube_proxy.iptables_nft import NftTables
from nodeagent.proxy.dataplane.kube_proxy.ipvs import VirtualServers
from nodeagent.proxy.dataplane.kube_proxy.leftovers import CleanupTarget, Failed, sweep
from nodeagent.proxy.dataplane.kube_proxy.own_tables import OwnTable
from nodeagent.proxy.dataplane.kube_proxy.running_kube_proxy import running_kube_proxy

_SYSTEM_PATH = ("/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin")


_NO_TABLE = "there is no table nodeagent: without kube-proxy's rules no service is reachable through this node"


def clean_up_kube_proxy(*, dry_run: bool, force: bool) -> None:
    """Removes the rules and prints a line for each item. Notes and failures go to standard error.

    dry_run: only print. force: also if the agent has programmed nothing.
    Raises Failure: code 1 if kube-proxy is running, if our tables are missing, or if an item could not be removed (all
    others are); 3 without permission.
    """
    process = running_kube_proxy()
    if process is not None and not dry_run:
        raise Failure(f"kube-proxy runs here (process {process}) and would write its rules again: stop it", FAILED)
    with kernel_failures(), closing(Ruleset()) as netlink:
        if process is not None:
            _note(f"kube-proxy still runs here (process {process}); stop it before")
        programmed = any(KernelTable(netlink, family, {}).header() is not None for family in Family)
        if not programmed and not dry_run and not force and sweep(places(netlink), dry_run=True).leftovers:
            raise Failure(f"{_NO_TABLE}: start the agent first, or use --force", FAILED)
        result = sweep(places(netlink), dry_run=dry_run)
    if result.leftovers and not programmed:
        _note(_NO_TABLE)
    for note in result.notes:
        _note(note)
    for line in result.leftovers:
        click.echo(f"{'would remove' if dry_run else 'removed'} {line}")
    if result.failed:
        raise _failure(result.failed)
    if not result.leftovers:
        click.echo("nothing of kube-proxy was here")


def places(netlink: Ruleset) -> tuple[CleanupTarget, ...]:
    """Returns everything that kube-proxy may have left, rules before the sets that they use."""
    path = os.environ.get("PATH", "").split(os.pathsep)
    tools = InstalledTools([Path(place) for place in (*path, *_SYSTEM_PATH) if place])
    return (
        *(OwnTable(netlink, family) for family in Family),
        *(NftTables(netlink, family) for family in Family),
        *(LegacyTables(tools, family) for family in Family),
        Sets(),
        VirtualServers(),
    )


def _note(text: str) -> None:
    click.echo(f"nodeagent: note: {text}", err=True)


def _failure(failed: Iterable[Failed]) -> Failure:
    failed = tuple(failed)
    may_not = all(isinstance(item.error, NotPermitted | PermissionError) for item in failed)
    return Failure("; ".join(str(item) for item in failed), CANNOT_PROGRAM if may_not else FAILED)
