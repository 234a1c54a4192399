"""The life cycle of a Service: what an update keeps, and what a new type does not use."""

from nodeagent.kinds.description.documents import Document
from nodeagent.kinds.description.life import KindLife
from nodeagent.kinds.service.kept_addresses import carry_over, sync_first_address


class ServiceLife(KindLife):
    """Keeps allocated addresses as long as the type uses them."""

    def __init__(self) -> None:
        super().__init__(has_status=True)

    def prepare_create(self, document: Document) -> None:
        """Clears the status, which a load balancer writes, and makes `clusterIP` and `clusterIPs` agree."""
        document["status"] = {"loadBalancer": {}}
        sync_first_address(document["spec"])

    def prepare_update(self, document: Document, old: Document) -> None:
        """Keeps the stored status and allocated values as long as the type uses them."""
        super().prepare_update(document, old)
        if old["spec"].get("type") == "LoadBalancer" and document["spec"].get("type") != "LoadBalancer":
            document["status"] = {"loadBalancer": {}}
        carry_over(document, old)
