"""Write a directory of manifests that describes a world of any size, for benchmarks.

    python tests/bench/generate_manifests.py --services 10000 --endpoints 10 --out DIR [--format json|yaml]

Every service has one TCP port, one ClusterIP of 10.96.0.0/12 and one EndpointSlice; endpoints live in 10.128.0.0/9,
spread over `--nodes` nodes. The same arguments always write the same bytes.
"""

import argparse
import json
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import yaml

SERVICES_PER_FILE = 250
CLUSTER_IPS = IPv4Address("10.96.0.0")
POD_IPS = IPv4Address("10.128.0.0")
MAX_SERVICES = 2**20 - 2
MAX_ENDPOINTS = 2**23 - 2

Manifest = dict[str, Any]


def service(index: int) -> Manifest:
    """Service number `index` (from 0)."""
    name, cluster_ip = f"svc-{index:05}", str(CLUSTER_IPS + 1 + index)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": f"ns-{index % 20:02}", "labels": {"app": name}},
        "spec": {
            "type": "ClusterIP",
            "clusterIP": cluster_ip,
            "clusterIPs": [cluster_ip],
            "ipFamilies": ["IPv4"],
            "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}],
        },
    }


def endpoint_slice(index: int, endpoints: int, nodes: int) -> Manifest:
    """The one slice of service number `index`: `endpoints` ready endpoints that no other service has."""
    first = index * endpoints
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"svc-{index:05}-a",
            "namespace": f"ns-{index % 20:02}",
            "labels": {"kubernetes.io/service-name": f"svc-{index:05}"},
        },
        "addressType": "IPv4",
        "endpoints": [
            {
                "addresses": [str(POD_IPS + 1 + number)],
                "conditions": {"ready": True, "serving": True, "terminating": False},
                "nodeName": f"node-{number % nodes}",
            }
            for number in range(first, first + endpoints)
        ],
        "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}],
    }


def files(services: int, endpoints: int, nodes: int) -> Iterator[tuple[str, list[Manifest]]]:
    """(stem of the file name, its objects), SERVICES_PER_FILE services with their slices in each."""
    if services > MAX_SERVICES or services * endpoints > MAX_ENDPOINTS:
        raise ValueError("more services or endpoints than there are addresses")
    for start in range(0, services, SERVICES_PER_FILE):
        objects: list[Manifest] = []
        for index in range(start, min(start + SERVICES_PER_FILE, services)):
            objects += [service(index), endpoint_slice(index, endpoints, nodes)]
        yield f"services-{start // SERVICES_PER_FILE:04}", objects


def write(out: Path, services: int, endpoints: int, nodes: int = 1000, form: str = "json") -> None:
    """Write the world to `out`, as `v1 List` documents (json) or one document per object (yaml)."""
    out.mkdir(parents=True, exist_ok=True)
    for stem, objects in files(services, endpoints, nodes):
        if form == "json":
            (out / f"{stem}.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
        else:
            (out / f"{stem}.yaml").write_text(yaml.dump_all(objects, Dumper=yaml.CSafeDumper, sort_keys=False))


def main() -> None:
    parser = argparse.ArgumentParser(description="write a directory of manifests for benchmarks")
    parser.add_argument("--services", type=int, default=10_000)
    parser.add_argument("--endpoints", type=int, default=10, help="per service")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--format", choices=("json", "yaml"), default="json")
    arguments = parser.parse_args()
    write(arguments.out, arguments.services, arguments.endpoints, arguments.nodes, arguments.format)


if __name__ == "__main__":
    main()
