"""Service changes, one after the other, from the write until every node serves them."""

import socket
import threading
import time
from contextlib import suppress
from http import HTTPStatus

from nodeagent.lab import lab_objects
from nodeagent.lab.api import Api, ApiRefused, Document
from nodeagent.lab.cluster import LiveCluster
from nodeagent.lab.fault_verdict import Change
from nodeagent.lab.lab_plan import SERVICE_PORT
from nodeagent.lab.net.network_namespaces import LabError, enter

BETWEEN_SECONDS = 0.1
AGAIN_SECONDS = 0.02
CONNECT_SECONDS = 0.25


class Changes:
    """A thread that repeatedly creates a Service, connects to it from every node until each reaches a pod, and deletes
    it.
    This needs a write, a ClusterIP, the controller of EndpointSlices, and each agent."""

    def __init__(self, cluster: LiveCluster) -> None:
        self._cluster = cluster
        self._api: Api = cluster.new_api()
        self._node_spaces = [cluster.world.namespace(node) for node in cluster.nodes]
        self._done: list[Change] = []
        self._under_way: float | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="service changes", daemon=True)
        self._thread.start()

    def seen(self) -> tuple[Change, ...]:
        """Returns every change so far; the last one may not be served yet."""
        began, done = self._under_way, list(self._done)
        return (*done, *([Change(began)] if began is not None and (not done or done[-1].began < began) else []))

    def stop(self) -> None:
        """Ends it and deletes its Services, unless no API server can be reached."""
        self._ending.set()
        self._thread.join()
        with suppress(LabError):  # a write without an answer may have created a Service
            left = self._api.call(
                "GET", f"{lab_objects.SERVICES}?labelSelector={lab_objects.MANAGED_BY}%3D{lab_objects.CHANGES}"
            )
            for service in left["items"]:
                self._api.delete(f"{lab_objects.SERVICES}/{service['metadata']['name']}")
        self._api.close()

    def _run(self) -> None:
        number = 0
        while not self._ending.is_set():
            number += 1
            name = f"{lab_objects.CHANGES}-{number}"
            self._under_way = began = time.monotonic()
            try:
                if (address := self._create(name)) is not None and self._wait_until_served(address):
                    self._done.append(Change(began, time.monotonic()))
            finally:
                self._delete(name)
            self._ending.wait(BETWEEN_SECONDS)

    def _create(self, name: str) -> str | None:
        """Creates a Service. Returns its ClusterIP, or None if it is stopped before."""
        while not self._ending.is_set():
            try:
                return str(self._create_or_get(name)["spec"]["clusterIP"])
            except LabError:
                self._ending.wait(AGAIN_SECONDS)
        return None

    def _create_or_get(self, name: str) -> Document:
        """Returns the Service, created now or by an earlier write without an answer."""
        try:
            return self._api.call("POST", lab_objects.SERVICES, lab_objects.change_object(name))
        except ApiRefused as refusal:
            if refusal.status != HTTPStatus.CONFLICT:
                raise
            return self._api.call("GET", f"{lab_objects.SERVICES}/{name}")

    def _wait_until_served(self, address: str) -> bool:
        """Waits until each node reaches a pod. Returns False if it is stopped before."""
        for namespace in self._node_spaces:
            with suppress(LabError):  # the namespace was removed with the lab
                enter(namespace)
            while not reaches(address):
                if self._ending.wait(AGAIN_SECONDS):
                    return False
        return True

    def _delete(self, name: str) -> None:
        """Deletes a Service and retries until it is done; while stopping, tries once."""
        while True:
            try:
                self._api.delete(f"{lab_objects.SERVICES}/{name}")
            except LabError:
                if self._ending.wait(AGAIN_SECONDS):
                    return
            else:
                return


def reaches(address: str) -> bool:
    """Returns whether the Service with this ClusterIP accepts connections from this thread's namespace."""
    try:
        socket.create_connection((address, SERVICE_PORT), timeout=CONNECT_SECONDS).close()
    except OSError:
        return False
    return True
