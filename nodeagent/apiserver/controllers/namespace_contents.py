"""Creates the objects that clients expect in each namespace: the ServiceAccount `default` and the ConfigMap `kube-root-ca.crt`.

Like kube-controller-manager's controllers serviceaccount and root-ca-certificate-publisher, which may run beside this
one: an authority that they have published is left as it is.
"""

import logging
from collections.abc import Iterable
from http import HTTPStatus
from typing import Final

from nodeagent.apiserver.machinery.acceptance import WriteOptions
from nodeagent.apiserver.machinery.registry import Registry
from nodeagent.apiserver.storage.records import Event
from nodeagent.apiserver.storage.store import Store
from nodeagent.kinds.description.documents import Document
from nodeagent.kinds.description.resources import NAMESPACES, Catalog, Resource
from nodeagent.kinds.description.status import ApiError

logger = logging.getLogger(__name__)
ACCOUNT: Final = "default"
AUTHORITY: Final = "kube-root-ca.crt"
_KEY: Final = "ca.crt"
_MANAGER: Final = "nodeagent-apiserver"
_OTHER_PUBLISHER: Final = "kube-controller-manager"
_DESCRIPTION: Final = "kubernetes.io/description"
_DESCRIBED: Final = "The authority that signs the API server's certificate. Use it for nothing else."
_REFUSED: Final = (HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND)


class NamespaceContents:
    """Reconciles one namespace by name. authority: the certificate to publish, in PEM, or None."""

    def __init__(self, store: Store, registry: Registry, catalog: Catalog, authority: str | None) -> None:
        self._store = store
        self._registry = registry
        self._accounts = catalog.named("serviceaccounts")
        self._config_maps = catalog.named("configmaps")
        self._authority = authority

    def concerns_account(self, event: Event) -> Iterable[str]:
        """Returns the namespace of a ServiceAccount `default`."""
        return (event.record.namespace,) if event.record.name == ACCOUNT else ()

    def concerns_authority(self, event: Event) -> Iterable[str]:
        """Returns the namespace of a ConfigMap `kube-root-ca.crt`."""
        return (event.record.namespace,) if event.record.name == AUTHORITY else ()

    async def reconcile(self, name: str) -> None:
        """Creates missing objects and corrects the published authority."""
        record = self._store.get(NAMESPACES, name)
        if record is None or record.document()["metadata"].get("deletionTimestamp"):
            return
        if self._store.get(self._accounts.stored_in, f"{name}/{ACCOUNT}") is None:
            await self._create(self._accounts, name, {"metadata": {"name": ACCOUNT}})
        if self._authority is not None:
            await self._publish(name, self._authority)

    async def _publish(self, namespace: str, authority: str) -> None:
        data: Document = {_KEY: authority}
        record = self._store.get(self._config_maps.stored_in, f"{namespace}/{AUTHORITY}")
        if record is None:
            meta: Document = {"name": AUTHORITY, "annotations": {_DESCRIPTION: _DESCRIBED}}
            await self._create(self._config_maps, namespace, {"metadata": meta, "data": data})
            return
        published = record.document()
        if published.get("data") == data or _publisher(published) == _OTHER_PUBLISHER:
            return
        logger.info("published authority is corrected namespace=%s", namespace)
        options = WriteOptions(manager=_MANAGER)
        await self._registry.update(self._config_maps, namespace, AUTHORITY, {**published, "data": data}, options)

    async def _create(self, resource: Resource, namespace: str, document: Document) -> None:
        try:
            await self._registry.create(resource, namespace, document, WriteOptions(manager=_MANAGER))
        except ApiError as error:
            # Another server created it, or the namespace was deleted.
            if error.code not in _REFUSED:
                raise


def _publisher(published: Document) -> str:
    """Returns the manager that owns the published authority; empty if no manager does."""
    owners = (
        entry.get("manager", "")
        for entry in published["metadata"].get("managedFields") or []
        if f"f:{_KEY}" in ((entry.get("fieldsV1") or {}).get("f:data") or {})
    )
    return next(owners, "")
