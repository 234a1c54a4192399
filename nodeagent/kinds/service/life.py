"""A Service's part in a write: what is kept, and what a new type has no use for."""

from nodeagent.kinds.description.documents import Document
from nodeagent.kinds.description.life import Plain
from nodeagent.kinds.service.kept_addresses import carry_over, sync_first_address


class ServiceLife(Plain):
    """Addresses that were allocated stay as long as the type has a use for them."""

    def __init__(self) -> None:
        super().__init__(has_status=True)

    def prepare_create(self, document: Document) -> None:
        """The status is the load balancer's; `clusterIP` and `clusterIPs` say the same."""
        document["status"] = {"loadBalancer": {}}
        sync_first_address(document["spec"])

    def prepare_update(self, document: Document, old: Document) -> None:
        """Allocated values stay unless the type has no use for them."""
        super().prepare_update(document, old)
        if old["spec"].get("type") == "LoadBalancer" and document["spec"].get("type") != "LoadBalancer":
            document["status"] = {"loadBalancer": {}}
        carry_over(document, old)
