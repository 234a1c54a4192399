"""The command that opens a firewall which has one, in place of its rule."""

import pytest

from nodeagent.diagnosis.trace.others import read_table
from nodeagent.model.frontend import Route

from .test_report import PODS, frontend, node_with, report


@pytest.mark.parametrize(
    ("chain", "hook", "cure"),
    [
        ("ufw-user-forward", "forward", "ufw route allow to 10.244.1.10, or to the range of all pods"),
        (
            "DOCKER-USER",
            "forward",
            "iptables -I DOCKER-USER -d 10.244.1.10 -j ACCEPT, and the same with -s, or for the range of all pods",
        ),
        ("cali-FORWARD", "forward", "change that rule: nft -a list chain ip filter F"),
        ("ufw-user-input", "prerouting", "change that rule: nft -a list chain ip filter F"),
    ],
)
def test_the_advice_uses_the_command_of_the_firewall(chain: str, hook: str, cure: str) -> None:
    base = {"name": "F", "hook": hook, "prio": 0, "type": "filter", "policy": "drop"}
    guard = read_table("ip filter", [{"chain": base}, {"chain": {"name": chain}}], {}, {})
    reported = report(node_with(frontend(Route(PODS[:1])), others=(guard,))).verdict
    assert reported.endswith(f"because {hook}: ip filter, chain F: the policy of the chain; {cure}")
