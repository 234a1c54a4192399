"""The least program that can stand in for the agent: ``stand_in_agent.py DIRECTORY``.

Reads manifests every few milliseconds and writes one dnat rule per service address and port with `nft`. Good enough
for spread and for established connections, nothing else. It keeps tests of the lab apart from the agent's own.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import yaml

LOOK_EVERY = 0.01


def rules(objects: list[dict]) -> Iterator[str]:  # type: ignore[type-arg]
    """dnat rules for every service."""
    for service in (o for o in objects if o["kind"] == "Service"):
        for address in service["spec"]["clusterIPs"]:
            version = "ip6" if ":" in address else "ip"
            for piece in (o for o in objects if o["kind"] == "EndpointSlice"):
                if (piece["addressType"] == "IPv6") != (version == "ip6"):
                    continue
                yield from rule(service, address, version, piece)


def rule(service: dict, address: str, version: str, piece: dict) -> Iterator[str]:  # type: ignore[type-arg]
    for port, target in zip(service["spec"]["ports"], piece["ports"], strict=True):
        found = [endpoint["addresses"][0] for endpoint in piece["endpoints"]]
        choice = ", ".join(f"{i} : {a} . {target['port']}" for i, a in enumerate(found))
        protocol = port["protocol"].lower()
        yield (
            f"{version} daddr {address} {protocol} dport {port['port']}"
            f" dnat {version} to numgen random mod {len(found)} map {{ {choice} }}"
        )


def table(objects: list[dict]) -> str:  # type: ignore[type-arg]
    """The whole table, replacing the one before."""
    lines = "\n".join(rules(objects))
    return f"""
table inet stand-in
delete table inet stand-in
table inet stand-in {{
  chain services {{
{lines}
  }}
  chain prerouting {{
    type nat hook prerouting priority dstnat
    jump services
  }}
  chain output {{
    type nat hook output priority -100
    jump services
  }}
}}
"""


def main(directory: Path) -> None:
    before = None
    while True:
        texts = [file.read_text() for file in sorted(directory.glob("[!.]*.yaml"))]
        if texts and texts != before:
            objects = [yaml.safe_load(text) for text in texts]
            subprocess.run(["nft", "-f", "-"], input=table(objects), text=True, check=True)
            before = texts
        time.sleep(LOOK_EVERY)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
