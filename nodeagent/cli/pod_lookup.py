"""Asks the API server for a pod that a person names."""

import asyncio
import os

from nodeagent.cli.exit_codes import FAILED, UNUSABLE, Failure
from nodeagent.cli.named_pods import NamedPod, pod_named
from nodeagent.cli.node_view import Access
from nodeagent.cli.source_view import configured
from nodeagent.cli.user_kubeconfig import kubeconfig_paths
from nodeagent.daemon.part_options import cluster_access
from nodeagent.model.names import ObjectKey
from nodeagent.proxy.source.client.api_client import ApiClient
from nodeagent.proxy.source.client.api_errors import KubeError
from nodeagent.proxy.source.client.kubeconfig import ClusterAccess, load_kubeconfig

_ANSWER_SECONDS = 5.0


def look_up_pod(access: Access, key: ObjectKey) -> NamedPod:
    """Returns a pod from the API server. Raises Failure."""
    look = f"kubectl get pod {key.name} -n {key.namespace} -o wide says its address"

    async def ask() -> NamedPod:
        async with asyncio.timeout(_ANSWER_SECONDS), ApiClient(_cluster(access, key, look)) as client:
            return await pod_named(client, key)

    try:
        return asyncio.run(ask())
    except TimeoutError as error:
        raise Failure(f"pod {key}: no answer in {_ANSWER_SECONDS:g} s: {look}", FAILED) from error
    except KubeError as error:
        raise Failure(f"pod {key}: {error}: {look}", FAILED) from error


def _cluster(access: Access, key: ObjectKey, look: str) -> ClusterAccess:
    """Returns the API server of the configuration, or else of the user's kubeconfig. Raises Failure, KubeError."""
    config = configured(access)
    if config.source.kubeconfig is not None:
        return cluster_access(config, os.environ)
    paths = kubeconfig_paths(None)
    if any(path.exists() for path in paths):
        return load_kubeconfig(paths)
    raise Failure(f"pod {key}: the agent does not know pods: give --kubeconfig FILE, or {look}", UNUSABLE)
