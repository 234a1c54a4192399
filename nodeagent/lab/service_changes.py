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
    """A thread that makes a Service, connects to it from every node until each reaches a pod, and deletes it, all the time.

    What is needed for that: a write, a ClusterIP, a controller that finds the endpoints, and each agent.
    """

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
        """Every change until now; the last one may not be in force."""
        began, done = self._under_way, list(self._done)
        return (*done, *([Change(began)] if began is not None and (not done or done[-1].began < began) else []))

    def stop(self) -> None:
        """Ends it; nothing is left of it, unless no API server can be reached."""
        self._ending.set()
        self._thread.join()
        with suppress(LabError):  # what an unanswered write has made after all
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
                if (address := self._create(name)) is not None and self._is_in_force(address):
                    self._done.append(Change(began, time.monotonic()))
            finally:
                self._delete(name)
            self._ending.wait(BETWEEN_SECONDS)

    def _create(self, name: str) -> str | None:
        """The ClusterIP of a new Service; None when all is to end before there is one."""
        while not self._ending.is_set():
            try:
                return str(self._written(name)["spec"]["clusterIP"])
            except LabError:
                self._ending.wait(AGAIN_SECONDS)
        return None

    def _written(self, name: str) -> Document:
        """The Service, made now or by an earlier try that nobody answered."""
        try:
            return self._api.call("POST", lab_objects.SERVICES, lab_objects.change_object(name))
        except ApiRefused as refusal:
            if refusal.status != HTTPStatus.CONFLICT:
                raise
            return self._api.call("GET", f"{lab_objects.SERVICES}/{name}")

    def _is_in_force(self, address: str) -> bool:
        """Return when each node reaches a pod; False when all is to end before."""
        for namespace in self._node_spaces:
            with suppress(LabError):  # the namespace has gone: so does all
                enter(namespace)
            while not reaches(address):
                if self._ending.wait(AGAIN_SECONDS):
                    return False
        return True

    def _delete(self, name: str) -> None:
        """Until it is gone. When all is to end, once."""
        while True:
            try:
                self._api.delete(f"{lab_objects.SERVICES}/{name}")
            except LabError:
                if self._ending.wait(AGAIN_SECONDS):
                    return
            else:
                return


def reaches(address: str) -> bool:
    """Whether the Service of this ClusterIP answers where this thread is."""
    try:
        socket.create_connection((address, SERVICE_PORT), timeout=CONNECT_SECONDS).close()
    except OSError:
        return False
    return True
