"""The faults that can be injected: the target of each, how long it lasts, what it must not cost."""

from enum import StrEnum

from msgspec import Struct

from nodeagent.lab import control_faults, faults
from nodeagent.lab.cluster import LiveCluster
from nodeagent.lab.control_faults import ETCD, SERVER
from nodeagent.lab.fault_verdict import Promise
from nodeagent.lab.faults import Fault, Site
from nodeagent.lab.net.network_namespaces import LabError


class FaultTarget(StrEnum):
    """What a fault breaks; decides whether the user may name it."""

    NODE = "node"
    CLUSTER = "cluster"
    ETCD = "etcd"
    LEADER = "leader"
    FOLLOWER = "follower"
    SERVER = "server"
    """The one that runs the controllers, unless another is named."""
    USED = "used server"
    """The one to which most nodes are connected, unless another is named."""

    @property
    def can_be_named(self) -> bool:
        """Whether the user may name the node or server that is broken."""
        return self in (FaultTarget.NODE, FaultTarget.FOLLOWER, FaultTarget.SERVER, FaultTarget.USED)


class FaultKind(Struct, frozen=True):
    """A kind of fault.
    seconds: how long it lasts by default; 0 if its length cannot be chosen. amount: the default amount, with its unit
    in `what`; 0 without one. If changes are watched and no end is given, it ends when a change has taken effect in
    spite of it."""

    what: str
    inject: Fault
    promise: Promise = Promise()
    seconds: float = 0.0
    amount: float = 0.0
    target: FaultTarget = FaultTarget.NODE

    def text(self, site: Site) -> str:
        """Returns a description of what is done."""
        return self.what.format(node=site.node, amount=site.amount)


NOTHING = Promise(new=True, open=True)
NODE_KINDS = {
    "restart": FaultKind("agent of {node} restarted", faults.restart, NOTHING),
    "kill": FaultKind("agent of {node} killed, started again", faults.kill, NOTHING, seconds=1.0),
    "dns": FaultKind("DNS process of {node} killed", faults.dns, NOTHING, seconds=2.0),
    "freeze": FaultKind("agent of {node} frozen", faults.freeze, NOTHING, seconds=3.0),
    "api": FaultKind("API server down", faults.api, NOTHING, seconds=4.0, target=FaultTarget.CLUSTER),
    "rollover": FaultKind("every pod replaced", faults.rollover, Promise(new=True), target=FaultTarget.CLUSTER),
    "flush": FaultKind("nft flush ruleset on {node}", faults.flush),
    "delay": FaultKind("{amount:g} ms more to and from {node}", faults.delay, seconds=3.0, amount=20.0),
    "drop": FaultKind("{amount:g}% of packets to and from {node} lost", faults.drop, seconds=3.0, amount=5.0),
    "conntrack": FaultKind("connection table of {node} full", faults.conntrack, seconds=2.0),
    "cut": FaultKind("link of {node} cut", faults.cut, seconds=2.0),
}
"""Ordered by severity."""

WITHIN = Promise(new=True, open=True, changes=15.0)
AFTERWARDS = Promise(new=True, open=True, changes=15.0, stands_still=True)
CONTROL_KINDS = {
    "follower-kill": FaultKind("etcd follower on {node} killed", ETCD.kill, WITHIN, 20.0, target=FaultTarget.FOLLOWER),
    "follower-freeze": FaultKind(
        "etcd follower on {node} frozen", ETCD.freeze, WITHIN, 20.0, target=FaultTarget.FOLLOWER
    ),
    "follower-cut": FaultKind("etcd follower on {node} cut off", ETCD.cut, WITHIN, 20.0, target=FaultTarget.FOLLOWER),
    "leader-kill": FaultKind("etcd leader on {node} killed", ETCD.kill, WITHIN, 20.0, target=FaultTarget.LEADER),
    "leader-freeze": FaultKind("etcd leader on {node} frozen", ETCD.freeze, WITHIN, 20.0, target=FaultTarget.LEADER),
    "leader-cut": FaultKind("etcd leader on {node} cut off", ETCD.cut, WITHIN, 20.0, target=FaultTarget.LEADER),
    "server-kill": FaultKind("API server of {node} killed", SERVER.kill, WITHIN, 20.0, target=FaultTarget.SERVER),
    "server-freeze": FaultKind("API server of {node} frozen", SERVER.freeze, WITHIN, 20.0, target=FaultTarget.SERVER),
    "server-cut": FaultKind("API server of {node} cut off", SERVER.cut, WITHIN, 20.0, target=FaultTarget.USED),
    "clock": FaultKind(
        "clock of {node}'s API server {amount:g} s ahead",
        control_faults.clock,
        WITHIN,
        20.0,
        3600.0,
        FaultTarget.SERVER,
    ),
    "space": FaultKind("etcd out of space", control_faults.space, AFTERWARDS, 2.0, target=FaultTarget.ETCD),
}
"""Faults of several control planes."""
KINDS = {**NODE_KINDS, **CONTROL_KINDS}


def victim(name: str, cluster: LiveCluster, named: str) -> str:
    """Returns the node or control-plane host of a fault: the named one, or the default. Raises ValueError, LabError."""
    kind = KINDS[name]
    if named and not kind.target.can_be_named:
        raise ValueError(f"{name} {_UNNAMED[kind.target]}: leave out {named!r}")
    if kind.target in (FaultTarget.NODE, FaultTarget.CLUSTER):
        if named and named not in cluster.nodes:
            raise ValueError(f"there is no node {named!r}; there are {', '.join(cluster.nodes)}")
        return named or next(iter(cluster.nodes))
    control = cluster.control
    if control is None or control.etcd is None:
        raise LabError("the lab has no etcd: `nodeagent lab up --control-planes 3` makes a lab with etcd")
    if named and named not in control.hosts:
        raise ValueError(f"there is no control plane {named!r}; there are {', '.join(control.hosts)}")
    if kind.target is FaultTarget.SERVER:
        return named or control.elected(cluster.api)
    if kind.target is FaultTarget.USED:
        return named or control.most_used()
    leader = control.etcd.leader()
    if kind.target is FaultTarget.FOLLOWER:
        if named == leader:
            raise LabError(f"the member of {named} leads, so it is not a follower")
        return named or next(host for host in control.hosts if host != leader)
    return leader


_UNNAMED = {
    FaultTarget.CLUSTER: "is not on one node",
    FaultTarget.LEADER: "is always on the leader",
    FaultTarget.ETCD: "is on all of etcd",
}
