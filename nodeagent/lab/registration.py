"""The lab's objects in its own or a foreign API server: created, kept alive, deleted."""

from contextlib import suppress
from datetime import UTC, datetime
from http import HTTPStatus

from nodeagent.lab import lab_objects
from nodeagent.lab.api import Api, ApiRefused, Document
from nodeagent.lab.lab_plan import Settings
from nodeagent.lab.net.network_namespaces import LabError
from nodeagent.lab.net.topology import Node, Pod


class Registration:
    """Objects that are labelled as one lab's. Methods raise LabError if the server does not do what it should."""

    def __init__(self, api: Api, settings: Settings) -> None:
        self._api = api
        self._settings = settings
        self._since = now()
        self._paths: list[str] = []

    def add_node(self, node: Node, number: int) -> None:
        """Creates a ready node and its Lease."""
        self._create(lab_objects.NODES, lab_objects.node_object(node, number, self._since))
        self._create(lab_objects.LEASES, lab_objects.lease(node.name, now(micro=True)))

    def add_pod(self, pod: Pod, node: Node) -> None:
        """Creates a pod that runs on this node."""
        self._create(lab_objects.PODS, lab_objects.pod_object(pod, node.name))
        status = lab_objects.running_status(pod, node.addresses[0], now())
        self._api.call("PATCH", f"{lab_objects.PODS}/{pod.name}/status", status, content_type=lab_objects.MERGE_PATCH)

    def add_service(self) -> None:
        """Creates the lab's own service and, if the API server is the lab's, the DNS Service."""
        self._create(lab_objects.SERVICES, lab_objects.service_object(self._settings))
        if self._settings.dns and self._settings.embedded:
            self._create(lab_objects.DNS_SERVICES, lab_objects.dns_service_object(self._settings))

    def renew_lease(self, node: str) -> None:
        """Renews a node's Lease, and updates the time of its Ready condition."""
        lease = {"spec": lab_objects.lease(node, now(micro=True))["spec"]}
        self._api.call("PATCH", f"{lab_objects.LEASES}/{node}", lease, content_type=lab_objects.MERGE_PATCH)
        heartbeat = lab_objects.heartbeat(self._since, now())
        self._api.call("PATCH", f"{lab_objects.NODES}/{node}/status", heartbeat, content_type=lab_objects.MERGE_PATCH)

    def withdraw(self) -> None:
        """Deletes all of them, if the server can be reached."""
        with suppress(LabError):
            for path in reversed(self._paths):
                self._api.delete(path, {"gracePeriodSeconds": 0})

    def _create(self, path: str, document: Document) -> None:
        """Creates one object with the label. Replaces one of a killed lab of this name; raises LabError for any other."""
        name, mark = document["metadata"]["name"], f"nodeagent-lab-{self._settings.name}"
        document["metadata"].setdefault("labels", {})[lab_objects.MANAGED_BY] = mark
        try:
            self._api.call("POST", path, document)
        except ApiRefused as refusal:
            if refusal.status != HTTPStatus.CONFLICT:
                raise
            there = self._api.call("GET", f"{path}/{name}")["metadata"].get("labels") or {}
            if there.get(lab_objects.MANAGED_BY) != mark:
                raise LabError(f"{path}/{name} exists already, and does not belong to this lab") from None
            self._api.delete(f"{path}/{name}", {"gracePeriodSeconds": 0})
            self._api.call("POST", path, document)
        self._paths.append(f"{path}/{name}")


def now(*, micro: bool = False) -> str:
    """Returns the time as the API writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")
