"""Requests to an API server from a member's namespace, with what a kubeconfig says: for tests that time what they do."""

from pathlib import Path

from nodeagent.lab.api import Access, Api, ApiRefused, Document
from nodeagent.proxy.source.client.api_client import JSON, Timeouts

MERGE_PATCH = "application/merge-patch+json"


class ApiClient:
    """One connection for each request, so that a restarted server is met afresh. Raises LabError when it does not
    answer, ApiRefused when it refuses."""

    def __init__(self, namespace: str, kubeconfig: Path, *, timeout: float = 60.0) -> None:
        self._namespace = namespace
        self._access = Access.read(kubeconfig)
        self._timeouts = Timeouts(timeout, timeout, timeout)

    def call(self, method: str, path: str, body: Document | None = None, *, content_type: str = JSON) -> Document:
        """The answer's document."""
        with Api(self._access, self._namespace, self._timeouts) as api:
            return api.call(method, path, body, content_type=content_type)

    def get(self, path: str) -> Document:
        """The object or list there."""
        return self.call("GET", path)

    def create(self, path: str, body: Document) -> Document:
        """The object as the server made it in the collection at `path`."""
        return self.call("POST", path, body)

    def replace(self, path: str, body: Document) -> Document:
        """The object as the server has it now."""
        return self.call("PUT", path, body)

    def merge(self, path: str, patch: Document) -> Document:
        """The object after an RFC 7386 merge patch."""
        return self.call("PATCH", path, patch, content_type=MERGE_PATCH)

    def delete(self, path: str, *, grace_seconds: int | None = None) -> None:
        """Delete the object; one that is not there is fine."""
        options = {} if grace_seconds is None else {"gracePeriodSeconds": grace_seconds}
        try:
            self.call("DELETE", path, {"apiVersion": "v1", "kind": "DeleteOptions", **options})
        except ApiRefused as error:
            if error.status != 404:
                raise
