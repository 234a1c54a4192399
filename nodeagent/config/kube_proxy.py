"""Reads kube-proxy's own configuration file, unchanged.

kube_proxy_fields.py lists which fields apply. Decided here, because it needs more than one field:

- `traffic.masqueradeAll` is on if ``nftables.masqueradeAll`` is, or if ``iptables.masqueradeAll`` is and the file's
  mode is iptables (or unset) or ipvs, in which kube-proxy reads it.
- The periods of the ``iptables`` and ``ipvs`` sections never apply: they pace programs that nodeagent does not run.
- With an IPv6 ``bindAddress`` the servers listen on ``[::]`` and ``[::1]`` by default, like kube-proxy's.
- Of the feature gates ``AllowServiceExternalIPs`` applies, as `traffic.externalIPs`.
- ``localhost`` in ``nodePortAddresses`` is ignored if there are other addresses.
"""

from nodeagent.config.config_problems import ConfigProblem, IgnoredField
from nodeagent.config.document import Located
from nodeagent.config.durations import parse_duration
from nodeagent.config.kube_proxy_fields import KUBE_PROXY_FIELDS, GoType, KubeProxyField
from nodeagent.config.layer import Layer, Setting, unknown_key
from nodeagent.config.values import ALL, LOCALHOST
from nodeagent.model.addresses import Family, family_of, parse_address, parse_network

_MODES = ("", "iptables", "ipvs", "nftables")
_EXTERNAL_IPS_GATE = "AllowServiceExternalIPs"
_DEBUG_VERBOSITY = 4  # klog: 0 to 3 is for operators, 4 and more for debugging (Kubernetes' logging conventions)


def level_of_verbosity(verbosity: int) -> str:
    """Returns the log level for klog's ``-v``."""
    return "debug" if verbosity >= _DEBUG_VERBOSITY else "info"


def read_kube_proxy_configuration(document: Located) -> Layer:
    """Returns what a KubeProxyConfiguration sets, its errors, and its fields without effect."""
    return _Import().run(document)


class _Import:
    """Converts one file into a layer."""

    def __init__(self) -> None:
        self._layer = Layer()
        self._fields: dict[str, Located] = {}

    def run(self, document: Located) -> Layer:
        self._collect(document, "")
        mode = self._text("mode")
        if mode not in _MODES:
            self._problem("mode", "must be iptables, ipvs or nftables, or left out")
        for path, located in self._fields.items():
            field = KUBE_PROXY_FIELDS[path]
            if field.becomes:
                self._apply(field, located, mode)
            elif path == "featureGates":
                self._apply_feature_gates(located, field.reason)
            elif not _is_usual(field, located.plain):
                self._ignore(path, field.reason)
        self._listen_as_bound()
        self._warn_of_node_ports(mode)
        return self._layer

    def _collect(self, section: Located, prefix: str) -> None:
        """Keeps every field that is set and has the right type."""
        entries = section.entries()
        if entries is None:
            self._layer.problems.append(ConfigProblem(section.origin, prefix.rstrip("."), "must be a mapping"))
            return
        for name, located in entries.items():
            path = f"{prefix}{name}"
            field = KUBE_PROXY_FIELDS.get(path)
            if field is None and any(known.startswith(f"{path}.") for known in KUBE_PROXY_FIELDS):
                self._collect(located, f"{path}.")
            elif field is not None:
                self._take(field, located)
            elif path not in {"apiVersion", "kind"}:
                self._layer.problems.append(unknown_key(located.origin, path, KUBE_PROXY_FIELDS))

    def _take(self, field: KubeProxyField, located: Located) -> None:
        value = located.plain
        if value is None:
            return
        reason = _type_problem(field.type, value)
        if reason:
            self._layer.problems.append(ConfigProblem(located.origin, field.path, reason))
        elif field.pointer or not _is_zero(field.type, value):
            self._fields[field.path] = located

    def _apply(self, field: KubeProxyField, located: Located, mode: str) -> None:
        value = located.plain
        match field.path:
            case "iptables.masqueradeAll" if mode == "nftables":
                self._ignore(field.path, "it is for the iptables and ipvs modes, but mode is nftables")
                return
            case "clusterCIDR":
                value = [cidr.strip() for cidr in self._text(field.path).split(",")]
                if not _one_per_family(value):
                    self._problem(field.path, "must be one CIDR, or two of different families with a comma in between")
                    return
            case "logging.verbosity":
                assert isinstance(value, int)
                value = level_of_verbosity(value)
            case "nodePortAddresses":
                self._apply_node_port_addresses(located)
                return
            case _:
                pass
        self._layer.settings[field.becomes] = Setting(value, located.origin, field.path)

    def _apply_feature_gates(self, located: Located, reason: str) -> None:
        gates = located.entries() or {}
        external = gates.get(_EXTERNAL_IPS_GATE)
        if external is not None:
            path = f"featureGates.{_EXTERNAL_IPS_GATE}"
            self._layer.settings["traffic.externalIPs"] = Setting(external.plain, external.origin, path)
        if gates.keys() - {_EXTERNAL_IPS_GATE}:
            self._ignore("featureGates", reason)

    def _apply_node_port_addresses(self, located: Located) -> None:
        assert isinstance(located.value, list)
        kept = [item for item in located.value if item.value != LOCALHOST]
        if kept and len(kept) < len(located.value):
            reason = "node ports are never answered on loopback addresses"
            self._layer.ignored.append(IgnoredField("nodePortAddresses: localhost", reason, located.origin))
        chosen = kept or located.value
        self._layer.settings["traffic.nodePortAddresses"] = Setting(
            [item.plain for item in chosen],
            located.origin,
            "nodePortAddresses",
            tuple(item.origin for item in chosen),
        )

    def _listen_as_bound(self) -> None:
        """Like kube-proxy's getDefaultAddresses: servers listen in bindAddress's family unless configured otherwise."""
        address = parse_address(self._text("bindAddress"))
        if address is None or family_of(address) is not Family.IPV6:
            return
        for path, text in (("healthzBindAddress", "[::]:10256"), ("metricsBindAddress", "[::1]:10249")):
            if path not in self._fields:
                key = KUBE_PROXY_FIELDS[path].becomes
                self._layer.settings[key] = Setting(text, self._fields["bindAddress"].origin, "bindAddress")

    def _warn_of_node_ports(self, mode: str) -> None:
        if mode != "nftables" and "nodePortAddresses" not in self._fields:
            self._layer.warnings.append(
                f"node ports answer at the node's primary addresses only; kube-proxy in mode {mode or 'iptables'} answers "
                f"at every address of the node (nodePortAddresses: [{ALL}])"
            )

    def _text(self, path: str) -> str:
        located = self._fields.get(path)
        return str(located.value) if located is not None else ""

    def _problem(self, path: str, reason: str) -> None:
        self._layer.problems.append(ConfigProblem(self._fields[path].origin, path, reason))

    def _ignore(self, path: str, reason: str) -> None:
        self._layer.ignored.append(IgnoredField(path, reason, self._fields[path].origin))


def _type_problem(expected: GoType, value: object) -> str:
    """Returns why `value` does not have the type; empty if it has."""
    number = isinstance(value, int) and not isinstance(value, bool)
    text = isinstance(value, str)
    match expected:
        case GoType.STRING:
            fits = text
        case GoType.BOOL:
            fits = isinstance(value, bool)
        case GoType.INT:
            fits = number
        case GoType.FLOAT:
            fits = number or isinstance(value, float)
        case GoType.DURATION:
            return _duration_problem(value) if text else f"must be {expected.value}, not {value!r}"
        case GoType.DURATION_OR_NANOSECONDS:
            if text:
                return _duration_problem(value)
            fits = number
        case GoType.QUANTITY:
            fits = text or number
        case GoType.STRINGS:
            fits = isinstance(value, list) and all(isinstance(item, str) for item in value)
        case GoType.BOOLS:
            fits = isinstance(value, dict) and all(isinstance(item, bool) for item in value.values())
        case GoType.OBJECTS:
            fits = isinstance(value, list) and all(isinstance(item, dict) for item in value)
    return "" if fits else f"must be {expected.value}, not {value!r}"


def _duration_problem(value: object) -> str:
    assert isinstance(value, str)
    try:
        parse_duration(value)
    except ValueError as error:
        return str(error)
    return ""


def _is_zero(expected: GoType, value: object) -> bool:
    if expected in {GoType.DURATION, GoType.DURATION_OR_NANOSECONDS} and isinstance(value, str):
        return parse_duration(value).nanoseconds == 0
    return not value


def _is_usual(field: KubeProxyField, value: object) -> bool:
    if field.type is GoType.DURATION and isinstance(value, str):
        return any(parse_duration(value) == parse_duration(str(usual)) for usual in field.usual)
    return any(value == usual and isinstance(value, bool) is isinstance(usual, bool) for usual in field.usual)


def _one_per_family(cidrs: list[str]) -> bool:
    """Returns whether kube-proxy accepts the list; a list with invalid CIDRs passes, because each is refused later."""
    if any(parse_network(cidr) is None for cidr in cidrs):
        return True
    return len({family_of(cidr) for cidr in cidrs}) == len(cidrs)
