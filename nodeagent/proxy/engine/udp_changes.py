"""Holds the UDP service ports that changed until their family is programmed. If flows were ended earlier, the next packet
would go to the old endpoint again."""

from collections.abc import Collection, Mapping

from msgspec.structs import replace

from nodeagent.model.addresses import Family
from nodeagent.model.frontend import ServiceState, UdpPort
from nodeagent.model.names import ObjectKey, ServicePortName

_PortId = tuple[ServicePortName, Family]


class UdpChanges:
    """Remembers every UDP port as last seen, and those that have not been handed over since."""

    def __init__(self) -> None:
        self._ports: dict[ObjectKey, dict[_PortId, UdpPort]] = {}
        self._waiting: dict[_PortId, UdpPort] = {}

    def note(self, changed: Mapping[ObjectKey, ServiceState | None]) -> None:
        """Takes in changed services. A port that was deleted is handed over as one without serving endpoints."""
        for key, state in changed.items():
            if key not in self._ports and (state is None or not state.udp_ports):
                continue
            before = self._ports.pop(key, {})
            after = {(port.service_port, port.family): port for port in (state.udp_ports if state else ())}
            for name, port in before.items():
                if name not in after:
                    self._waiting[name] = replace(port, serving=frozenset())
            self._waiting.update(after)
            if after:
                self._ports[key] = after

    def take(self, programmed: Collection[Family]) -> list[UdpPort]:
        """Returns the ports of the families that are programmed now, and drops them here."""
        taken = [port for (_, family), port in self._waiting.items() if family in programmed]
        self._waiting = {name: port for name, port in self._waiting.items() if name[1] not in programmed}
        return taken
