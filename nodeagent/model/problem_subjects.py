"""The beginnings of the subjects of problems that no object causes."""

TO_ENDPOINTS = "routes to endpoints"
OTHER_RULES = "rules of other programs"
LONG_PACKETS = "long packets"
OF_EVERY_SERVICE = (
    "sysctl ",
    "connection table",
    "reverse path filter",
    "source ports",
    "hook order",
    "forwarding of interfaces",
)
"""Conditions of the node that affect each Service, as the agent watches them."""
OF_THE_NODE = (*OF_EVERY_SERVICE, TO_ENDPOINTS, OTHER_RULES, LONG_PACKETS)
OF_THE_CONFIGURATION = ("configuration ",)
OF_THE_AGENT = ("agent", "table nodeagent", "clock of this node")
"""Conditions of the agent's own process, and of what it programs."""
