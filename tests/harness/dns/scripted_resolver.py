"""A resolver as the cluster's DNS sees it, with the records of `upstream.json` instead of the Internet."""

import json

import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import dns.rrset
import dns.zone

from tests.harness.dns.reference import HERE


class ScriptedResolver:
    """Answers query messages; delays are not kept."""

    def __init__(self) -> None:
        script = json.loads((HERE / "upstream.json").read_text())
        self._zones = [dns.name.from_text(zone) for zone in script["zones"]]
        self._behaviours = {dns.name.from_text(name): what for name, what in script["behaviours"].items()}
        self._records: dict[dns.name.Name, list[dns.rrset.RRset]] = {}
        for line in script["records"]:
            owner, ttl, _, kind, rdata = line.split(" ", 4)
            name = dns.name.from_text(owner)
            sets = self._records.setdefault(name, [])
            added = dns.rrset.from_text(owner, int(ttl), "IN", kind, rdata)
            rrset = next((one for one in sets if one.rdtype == added.rdtype), None)
            if rrset is None:
                sets.append(added)
            else:
                rrset.add(added[0])

    def reply(self, packet: bytes) -> bytes | None:
        """The whole response, as TCP would give it; None where the resolver says nothing."""
        query = dns.message.from_wire(packet)
        response = dns.message.make_response(query, recursion_available=True, our_payload=1232)
        response.flags |= query.flags & dns.flags.CD
        question = query.question[0]
        name, first = question.name, True
        for _ in range(8):
            what = self._behaviours.get(name, "")
            if what == "drop":
                return None
            if what in ("SERVFAIL", "REFUSED"):
                response.set_rcode(dns.rcode.from_text(what))
                break
            here = self._records.get(name, [])
            matching = [rrset for rrset in here if rrset.rdtype == question.rdtype]
            alias = next((rrset for rrset in here if rrset.rdtype == dns.rdatatype.CNAME), None)
            for rrset in matching or ([alias] if alias is not None else []):
                owner = question.name if first else rrset.name
                response.answer.append(dns.rrset.from_rdata_list(owner, rrset.ttl, list(rrset)))
            first = False
            if matching:
                break
            if alias is not None:
                name = alias[0].target
                continue
            if not here and not any(other.is_subdomain(name) for other in self._records):
                response.set_rcode(dns.rcode.NXDOMAIN)
            zone = max((zone for zone in self._zones if name.is_subdomain(zone)), key=len)
            response.authority += [one for one in self._records[zone] if one.rdtype == dns.rdatatype.SOA]
            break
        return response.to_wire(max_size=65535)
