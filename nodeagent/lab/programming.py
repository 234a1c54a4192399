"""Compares the expected endpoints with those in nodes' kernels: from the API server, and from `nodeagent show`."""

import json
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from nodeagent.lab.api import Api
from nodeagent.lab.net.warm_launcher import NODEAGENT
from nodeagent.lab.net.world import World
from nodeagent.model.addresses import endpoint_text

AT_A_TIME = 4

ServiceEndpoint = tuple[str, str]
"""NAMESPACE/NAME:PORT of a service port, and the address:port of an endpoint."""


def expected_endpoints(api: Api) -> set[ServiceEndpoint]:
    """Returns every ready endpoint in the API server. Raises LabError."""
    found = set()
    for one in api.call("GET", "/apis/discovery.k8s.io/v1/endpointslices")["items"]:
        meta = one["metadata"]
        service = f"{meta['namespace']}/{(meta.get('labels') or {}).get('kubernetes.io/service-name', '')}"
        for port in one.get("ports") or []:
            name = f"{service}:{port['name']}" if port.get("name") else service
            for endpoint in one.get("endpoints") or []:
                if (endpoint.get("conditions") or {}).get("ready", True):
                    found |= {(name, endpoint_text(address, port["port"])) for address in endpoint["addresses"]}
    return found


def programmed(world: World, nodes: Iterable[str], expected: set[ServiceEndpoint]) -> dict[str, tuple[int, int]]:
    """Returns for each node how many of these endpoints are in its kernel, and how many are expected."""

    def count(node: str) -> tuple[int, int]:
        shown = world.run(node, [*NODEAGENT, "show", "backends", "-o", "json"], check=False)
        rows = json.loads(shown.stdout) if not shown.returncode else []
        return len(expected & {(row["service"], row["backend"]) for row in rows}), len(expected)

    nodes = list(nodes)
    with ThreadPoolExecutor(max_workers=AT_A_TIME) as pool:
        return dict(zip(nodes, pool.map(count, nodes), strict=True))
