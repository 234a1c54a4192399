"""The addresses and ports that a Service takes and frees: pkg/registry/core/service.

IP families follow KEP-563 (dual stack): which ones, and whether a second address is wanted, required or refused.
"""

from collections.abc import Iterable
from ipaddress import ip_address

from nodeagent.apiserver.addresses.allocation import AllocationRefused, Allocator, Reservation, Unavailable
from nodeagent.kinds.description.address_texts import BOTH_FAMILIES
from nodeagent.kinds.description.documents import Document, Json
from nodeagent.kinds.description.status import FieldError, invalid, shown
from nodeagent.kinds.service import kept_addresses

_DUAL_STACK_FIELDS = {"clusterIPs": ("cluster IP", "cluster IPs"), "ipFamilies": ("IP family", "IP families")}


def allocate(allocator: Allocator, service: Document | None, old: Document | None) -> Reservation:
    """Completes `service` with addresses and ports and returns their reservation; `service` is None if it is deleted. Raises
    AllocationRefused; then nothing stays reserved."""
    reservation = Reservation()
    try:
        if service is not None:
            kept_addresses.sync_first_address(service["spec"])
            _choose_families(allocator, service["spec"], {} if old is None else old["spec"])
            _choose_addresses(allocator, reservation, service, kept_addresses.addresses_of(old))
            _choose_ports(allocator, reservation, service, kept_addresses.node_ports_of(old))
    except AllocationRefused:
        allocator.release(reservation)
        raise
    if old is not None:
        _free(allocator, reservation, service, old)
    return reservation


def _free(allocator: Allocator, reservation: Reservation, service: Document | None, old: Document) -> None:
    holder = f"{old['metadata']['namespace']}/{old['metadata']['name']}"
    for address in sorted(kept_addresses.addresses_of(old) - kept_addresses.addresses_of(service)):
        allocator.free_address(reservation, address, holder)
    for port in sorted(kept_addresses.node_ports_of(old) - kept_addresses.node_ports_of(service)):
        allocator.free_port(reservation, port, holder)


def _refusal(field: str, value: Json, detail: str) -> AllocationRefused:
    return AllocationRefused([invalid(field, value, detail)])


def _choose_families(allocator: Allocator, spec: Document, before: Document) -> None:
    if spec.get("type") == "ExternalName" or _keeps_families(spec, before):
        return
    configured = allocator.families
    headless_by_hand = spec.get("clusterIP") == kept_addresses.HEADLESS and not spec.get("selector")
    policy = spec.get("ipFamilyPolicy")
    if policy is None:
        policy = "RequireDualStack" if headless_by_hand and not spec.get("ipFamilies") else "SingleStack"
    if policy == "SingleStack":
        _drop_second(spec, before, policy)
    else:
        _check_not_fewer(spec, before, policy)
    addresses = [address for address in spec.get("clusterIPs") or [] if address != kept_addresses.HEADLESS]
    families = _complete(list(spec.get("ipFamilies") or []), addresses, configured)
    _check_families(families, configured, policy, headless_by_hand=headless_by_hand)
    if policy != "SingleStack" and len(families) == 1 and (len(configured) == BOTH_FAMILIES or headless_by_hand):
        families.append("IPv6" if families[0] == "IPv4" else "IPv4")
    spec["ipFamilyPolicy"] = policy
    spec["ipFamilies"] = families


def _keeps_families(spec: Document, before: Document) -> bool:
    """Returns whether a Service prefers dual stack and is unchanged: it keeps its families, even if a range was added."""
    return spec.get("ipFamilyPolicy") == "PreferDualStack" and all(
        spec.get(name) == before.get(name) for name in ("type", "ipFamilyPolicy", *_DUAL_STACK_FIELDS)
    )


def _drop_second(spec: Document, before: Document, policy: str) -> None:
    """Drops the second address and family if they are unchanged. Raises AllocationRefused if they are new."""
    for name, what in _DUAL_STACK_FIELDS.items():
        if len(spec.get(name) or []) != BOTH_FAMILIES:
            continue
        if spec[name] != before.get(name):
            why = f"must be 'RequireDualStack' or 'PreferDualStack' when multiple {what[1]} are specified"
            raise _refusal("spec.ipFamilyPolicy", policy, why)
        spec[name] = spec[name][:1]


def _check_not_fewer(spec: Document, before: Document, policy: str) -> None:
    for name, what in _DUAL_STACK_FIELDS.items():
        if 0 < len(spec.get(name) or []) < len(before.get(name) or []):
            why = f"must be 'SingleStack' to release the secondary {what[0]}"
            raise _refusal("spec.ipFamilyPolicy", policy, why)


def _complete(families: list[str], addresses: list[str], configured: list[str]) -> list[str]:
    for position, address in enumerate(addresses):
        family = f"IPv{ip_address(address).version}"
        if position >= len(families):
            families.append(family)
        elif families[position] != family:
            why = f"expected an {families[position]} value as indicated by `ipFamilies[{position}]`"
            raise _refusal(f"spec.clusterIPs[{position}]", address, why)
    return families or configured[:1]


def _check_families(families: Iterable[str], configured: list[str], policy: str, *, headless_by_hand: bool) -> None:
    if headless_by_hand:
        return
    for position, family in enumerate(families):
        if family not in configured:
            raise _refusal(f"spec.ipFamilies[{position}]", family, "not configured on this cluster")
    if policy == "RequireDualStack" and len(configured) < BOTH_FAMILIES:
        raise _refusal("spec.ipFamilyPolicy", policy, "this cluster is not configured for dual-stack services")


def _choose_addresses(allocator: Allocator, reservation: Reservation, service: Document, held: set[str]) -> None:
    spec, meta = service["spec"], service["metadata"]
    if spec.get("type") == "ExternalName":
        return
    if spec.get("clusterIP") == kept_addresses.HEADLESS:
        spec["clusterIPs"] = [kept_addresses.HEADLESS]
        return
    asked: list[str] = list(spec.get("clusterIPs") or [])
    chosen: list[str] = []
    for position, family in enumerate(spec["ipFamilies"]):
        wanted = asked[position] if position < len(asked) else ""
        try:
            if wanted:
                wanted = str(ip_address(wanted))
                if wanted not in held:
                    allocator.take_address(reservation, wanted, meta["namespace"], meta["name"])
            else:
                wanted = allocator.pick_address(reservation, family, meta["namespace"], meta["name"])
        except Unavailable as error:
            why = f"failed to allocate IP {wanted}: {error}" if wanted else f"failed to allocate a cluster IP: {error}"
            raise _refusal("spec.clusterIPs", asked, why) from None
        chosen.append(wanted)
    spec["clusterIPs"] = chosen
    spec["clusterIP"] = chosen[0]


def _choose_ports(allocator: Allocator, reservation: Reservation, service: Document, held: set[int]) -> None:
    spec = service["spec"]
    holder = f"{service['metadata']['namespace']}/{service['metadata']['name']}"
    wants_picks = kept_addresses.needs_node_ports(spec)
    picked: dict[int, tuple[str, int]] = {}
    for position, port in enumerate(spec.get("ports") or []):
        field = f"spec.ports[{position}].nodePort"
        asked = port.get("nodePort", 0)
        if asked:
            _take(allocator, reservation, asked, held, holder, field)
        elif wants_picks:
            # One node port serves the same port on several protocols, such as DNS on TCP and UDP.
            shared = picked.get(port["port"])
            if shared is not None and shared[0] != port["protocol"]:
                port["nodePort"] = shared[1]
            else:
                port["nodePort"] = _pick(allocator, reservation, holder, field)
        if port.get("nodePort"):
            picked.setdefault(port["port"], (port["protocol"], port["nodePort"]))
    if kept_addresses.needs_health_check(spec):
        asked = spec.get("healthCheckNodePort", 0)
        field = "spec.healthCheckNodePort"
        if asked:
            _take(allocator, reservation, asked, held, holder, field)
        else:
            spec["healthCheckNodePort"] = _pick(allocator, reservation, holder, field)


def _take(allocator: Allocator, reservation: Reservation, port: int, held: set[int], holder: str, field: str) -> None:
    if port in held:
        return
    try:
        allocator.take_port(reservation, port, holder)
    except Unavailable as error:
        raise _refusal(field, port, str(error)) from None


def _pick(allocator: Allocator, reservation: Reservation, holder: str, field: str) -> int:
    try:
        return allocator.pick_port(reservation, holder)
    except Unavailable as error:
        why = f"failed to allocate a nodePort: {error}"
        raise AllocationRefused([FieldError("InternalError", field, f"Internal error: {shown(why)}")]) from None
