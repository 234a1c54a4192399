"""The meaning of kube-proxy's ConfigMap for the agent that replaces it (pure)."""

from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

from msgspec import Struct

from nodeagent.config.config_problems import ConfigError
from nodeagent.config.document import parse_document
from nodeagent.config.files import CONFIG_MAP_KEY, read_text

KUBECONFIG_KEY = "kubeconfig.conf"
"""The key of kube-proxy's kubeconfig in the same ConfigMap, as kubeadm writes it."""


class Assessment(Struct, frozen=True):
    """How kube-proxy is configured, and what that means for a takeover.
    mode: kube-proxy's. server: of its kubeconfig. notes: differences that the user should know. blockers: what must change first."""

    mode: str = ""
    server: str = ""
    notes: tuple[str, ...] = ()
    blockers: tuple[str, ...] = ()


def assess(files: Mapping[str, str], kubernetes: Collection[str]) -> Assessment:
    """Returns the assessment. files: of the ConfigMap. kubernetes: ClusterIPs of the Service `kubernetes`."""
    if CONFIG_MAP_KEY not in files:
        return Assessment(blockers=(f"ConfigMap kube-proxy has no {CONFIG_MAP_KEY}: it was not made by kubeadm",))
    try:
        layer = read_text(files[CONFIG_MAP_KEY], CONFIG_MAP_KEY)
        configuration = parse_document(files[CONFIG_MAP_KEY], CONFIG_MAP_KEY).plain
        kubeconfig = parse_document(files.get(KUBECONFIG_KEY, "{}"), KUBECONFIG_KEY).plain
    except ConfigError as error:
        return Assessment(blockers=tuple(str(error).splitlines()))
    given = configuration if isinstance(configuration, dict) else {}
    mode = str(given.get("mode") or "iptables")
    server = _server(kubeconfig)
    notes = [f"{ignored.key} has no effect: {ignored.reason}" for ignored in layer.ignored]
    notes += layer.warnings
    if mode == "ipvs":
        notes.append(
            "connections through IPVS end when its virtual servers are removed: drain each node before `clean`"
        )
    blockers = [str(problem) for problem in layer.problems]
    if given.get("bindAddressHardFail"):
        blockers.append("bindAddressHardFail is on: agent and kube-proxy cannot run side by side; turn it off")
    return Assessment(mode, server, tuple(notes), (*blockers, *_server_blockers(server, kubernetes)))


def _server(kubeconfig: object) -> str:
    """Returns the server of the first cluster; kubeadm writes one. Empty if there is no server."""
    clusters = kubeconfig.get("clusters") if isinstance(kubeconfig, dict) else None
    first = clusters[0] if isinstance(clusters, list) and clusters else None
    cluster = first.get("cluster") if isinstance(first, dict) else None
    return str(cluster.get("server") or "") if isinstance(cluster, dict) else ""


def _server_blockers(server: str, kubernetes: Collection[str]) -> tuple[str, ...]:
    if not server:
        return (f"ConfigMap kube-proxy has no server in {KUBECONFIG_KEY}: agents would not find the API server",)
    if urlsplit(server).hostname in kubernetes:
        return (
            f"{server} is the Service `kubernetes`, which the agent itself programs: use the API server's own address",
        )
    return ()
