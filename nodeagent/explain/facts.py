"""Everything that is known of one Service on this node, before it is judged."""

from collections.abc import Sequence

from msgspec import Struct

from nodeagent.explain.endpoints import Account, account_endpoints
from nodeagent.explain.kernel import InKernel, Probe
from nodeagent.model.frontend import Frontend, ServiceState
from nodeagent.model.names import ObjectKey
from nodeagent.model.objects import EndpointSlice, Service, ServicePort, key_of
from nodeagent.model.problem import Problem
from nodeagent.translate.context import Context


class Facts(Struct, frozen=True, kw_only=True):
    """state: what the Service has here, conflicts settled; None: nothing. problems: all that are known, of everything.

    port: of this one only, by its name or number; empty: all. client: an address that wants to connect; empty: nobody.
    kernel: None where it was not read.
    """

    service: Service
    slices: Sequence[EndpointSlice]
    context: Context
    state: ServiceState | None
    problems: Sequence[Problem] = ()
    kernel: Sequence[InKernel] | None = None
    probes: Sequence[Probe] = ()
    port: str = ""
    client: str = ""

    @property
    def key(self) -> ObjectKey:
        """namespace/name"""
        return key_of(self.service)

    @property
    def ports(self) -> list[ServicePort]:
        """The ports that are looked at."""
        ports = self.service.spec.ports or ()
        return [one for one in ports if not self.port or self.port in (one.name or "", str(one.port))]

    def accounts(self) -> tuple[Account, ...]:
        """The endpoints for these ports."""
        names = {(one.name or "", one.protocol or "TCP") for one in self.ports}
        found = account_endpoints(self.service, self.slices, self.context)
        return tuple(one for one in found if not self.port or (one.service_port, one.protocol) in names)

    @property
    def frontends(self) -> list[Frontend]:
        """The addresses of these ports that the Service has here."""
        names = {one.name or "" for one in self.ports}
        state = self.state
        return [] if state is None else [one for one in state.frontends if one.service_port.port in names]

    @property
    def own_problems(self) -> list[Problem]:
        """Those with the Service itself and with its slices."""
        slices = {f"EndpointSlice {key_of(one)}" for one in self.slices}
        return [one for one in self.problems if one.subject == f"Service {self.key}" or one.subject in slices]
