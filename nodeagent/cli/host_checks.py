"""Finds what of a configuration cannot work on this machine: missing files, ranges that are in use."""

import os
from collections.abc import Iterator
from urllib.parse import urlsplit

from nodeagent.config.config_problems import ConfigError, ConfigProblem, Origin
from nodeagent.config.load import LoadedConfig
from nodeagent.config.values import DetectLocalMode
from nodeagent.model.addresses import parse_address, parse_network
from nodeagent.model.in_use import InUse, describe_overlap, host
from nodeagent.proxy.dataplane.nearby_addresses import in_use_here
from nodeagent.proxy.source.client.api_errors import OperatorError
from nodeagent.proxy.source.client.kubeconfig import load_kubeconfig

_SERVICE_RANGES = "traffic.serviceCIDRs"


def refuse_overlaps(loaded: LoadedConfig) -> LoadedConfig:
    """Returns `loaded`. Raises ConfigError if a service range contains an address or gateway of this machine."""
    ranges = loaded.config.traffic.service_cidrs
    if ranges:
        try:
            in_use = in_use_here(loaded.config.dataplane.interface_name)
        except OSError:  # the agent checks again at its start, and reports it
            in_use = frozenset()
        problems = [_problem(loaded, _SERVICE_RANGES, text) for text in _overlaps(ranges, in_use)]
        if problems:
            raise ConfigError(problems)
    return loaded


def check_files(loaded: LoadedConfig) -> Iterator[ConfigProblem]:
    """Yields a problem for each configured file or directory that cannot be used."""
    source = loaded.config.source
    if source.manifests is not None and not source.manifests.is_dir():
        what = "is not a directory" if source.manifests.exists() else "No such file or directory"
        yield _problem(loaded, "source.manifests", f"{source.manifests}: {what}")
    if source.kubeconfig is not None:
        try:
            load_kubeconfig(source.kubeconfig, source.context)
        except OperatorError as error:
            yield _problem(loaded, "source.kubeconfig", str(error).removeprefix("kubeconfig "))


def startup_warnings(loaded: LoadedConfig) -> Iterator[str]:
    """Yields a line for each setting that is valid but probably not intended. All files must exist."""
    source, traffic = loaded.config.source, loaded.config.traffic
    in_pod = bool(os.environ.get("KUBERNETES_SERVICE_HOST"))
    if not (source.manifests or source.kubeconfig or source.master or in_pod):
        yield (
            "no source: outside a pod, source.kubeconfig (--kubeconfig) or source.manifests (--manifests) must name one"
        )
    if traffic.detect_local_mode is DetectLocalMode.CLUSTER_CIDR and not traffic.cluster_cidrs:
        yield (
            "traffic.clusterCIDRs is empty: no source counts as a pod, so no connection to a ClusterIP has its source "
            "rewritten, and externalTrafficPolicy Local applies to pods too; set it, or traffic.detectLocalMode"
        )
    named = (load_kubeconfig(source.kubeconfig, source.context).server,) if source.kubeconfig else ()
    addresses = (parse_address(urlsplit(server).hostname or "") for server in source.master or named)
    api_servers = frozenset(host(address, "the API server") for address in addresses if address is not None)
    yield from (f"{_SERVICE_RANGES}: {text}" for text in _overlaps(traffic.service_cidrs, api_servers))


def _overlaps(ranges: tuple[str, ...], in_use: frozenset[InUse]) -> Iterator[str]:
    for cidr in ranges:
        network = parse_network(cidr)
        if network is not None and (what := describe_overlap(network, in_use)):
            yield f"{cidr} overlaps with {what}, which it would cut off"


def _problem(loaded: LoadedConfig, key: str, reason: str) -> ConfigProblem:
    return ConfigProblem(Origin(loaded.origins[key].removeprefix("file ")), key, reason)
