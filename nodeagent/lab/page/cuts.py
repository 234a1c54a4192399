"""Links of nodes that stay cut until they are repaired."""

from nodeagent.lab.cluster import LiveCluster
from nodeagent.lab.fault_kinds import KINDS
from nodeagent.lab.faults import Broken, Site
from nodeagent.lab.lab_thread import Work
from nodeagent.lab.net.network_namespaces import LabError

_CUT = KINDS["cut"]


class Cuts:
    """The links that the page has cut in one lab. Each is one of the lab's faults until it is repaired."""

    def __init__(self, cluster: LiveCluster, work: Work) -> None:
        self._cluster = cluster
        self._work = work
        self._present = cluster.faults
        self._broken: dict[str, Broken] = {}

    @property
    def nodes(self) -> frozenset[str]:
        """The names of the nodes that the page has cut off."""
        return frozenset(self._broken)

    async def cut(self, node: str) -> None:
        """Cuts a node off. Raises ValueError if there is no such node, LabError if it is cut off already."""
        site = self._site(node)
        text = _CUT.text(site)
        if text in self._present:
            raise LabError(f"{text} already")
        self._present.append(text)
        try:
            await site.inject(_CUT.inject)
        finally:
            if site.broken is None:
                self._present.remove(text)
            else:
                self._broken[node] = site.broken

    async def mend(self, node: str) -> None:
        """Repairs a node's link. Raises ValueError if there is no such node, LabError if the page has not cut it off."""
        text = _CUT.text(self._site(node))
        broken = self._broken.pop(node, None)
        if broken is None:
            by_others = " by this page; the command that cut it repairs it" if text in self._present else ""
            raise LabError(f"the link of {node} is not cut{by_others}")
        try:
            await self._work(broken.repair)
        except LabError:
            self._broken[node] = broken
            raise
        finally:
            if node not in self._broken:
                self._present.remove(text)

    def _site(self, node: str) -> Site:
        if node not in self._cluster.nodes:
            raise ValueError(f"there is no node {node!r}; there are {', '.join(self._cluster.nodes)}")
        return Site(self._cluster, self._work, node, 0.0)
