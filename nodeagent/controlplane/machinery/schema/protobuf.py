"""Reads objects in Kubernetes' protobuf encoding: what typed Go clients (`kubectl create` among them) send. Pure.

Only requests are read; responses are JSON, which all these clients accept. Numbers are those of the generated.proto files of
k8s.io/api (core, discovery, coordination, networking, events, authentication) and k8s.io/apimachinery (meta/v1, util/intstr, runtime); they
never change. Kinds that are not listed are refused as an unknown media type: of Pods and Nodes this server does not know all
messages, and could only lose what it cannot read.
"""

import base64
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Final

from nodeagent.controlplane.documents import Document, Json, decode
from nodeagent.controlplane.machinery.schema.shapes import ListOf, MapOf, Scalar, Shape, Struct

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
_MAGIC: Final = b"k8s\x00"
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_DEEPEST: Final = 40

_NUMBERS: Final = """
ObjectMeta: name=1 generateName=2 namespace=3 selfLink=4 uid=5 resourceVersion=6 generation=7 creationTimestamp=8
    deletionTimestamp=9 deletionGracePeriodSeconds=10 labels=11 annotations=12 ownerReferences=13 finalizers=14 managedFields=17
OwnerReference: kind=1 name=3 uid=4 apiVersion=5 controller=6 blockOwnerDeletion=7
ManagedFieldsEntry: manager=1 operation=2 apiVersion=3 time=4 fieldsType=6 fieldsV1=7 subresource=8
Condition: type=1 status=2 observedGeneration=3 lastTransitionTime=4 reason=5 message=6
Namespace: metadata=1 spec=2 status=3
NamespaceSpec: finalizers=1
NamespaceStatus: phase=1 conditions=2
NamespaceCondition: type=1 status=2 lastTransitionTime=4 reason=5 message=6
Service: metadata=1 spec=2 status=3
ServiceSpec: ports=1 selector=2 clusterIP=3 type=4 externalIPs=5 sessionAffinity=7 loadBalancerIP=8 loadBalancerSourceRanges=9
    externalName=10 externalTrafficPolicy=11 healthCheckNodePort=12 publishNotReadyAddresses=13 sessionAffinityConfig=14
    ipFamilyPolicy=17 clusterIPs=18 ipFamilies=19 allocateLoadBalancerNodePorts=20 loadBalancerClass=21
    internalTrafficPolicy=22 trafficDistribution=23
ServicePort: name=1 protocol=2 port=3 targetPort=4 nodePort=5 appProtocol=6
SessionAffinityConfig: clientIP=1
ClientIPConfig: timeoutSeconds=1
ServiceStatus: loadBalancer=1 conditions=2
LoadBalancerStatus: ingress=1
LoadBalancerIngress: ip=1 hostname=2 ipMode=3 ports=4
PortStatus: port=1 protocol=2 error=3
ConfigMap: metadata=1 data=2 binaryData=3 immutable=4
Secret: metadata=1 data=2 type=3 stringData=4 immutable=5
ServiceAccount: metadata=1 secrets=2 imagePullSecrets=3 automountServiceAccountToken=4
ObjectReference: kind=1 namespace=2 name=3 uid=4 apiVersion=5 resourceVersion=6 fieldPath=7
LocalObjectReference: name=1
Endpoints: metadata=1 subsets=2
EndpointSubset: addresses=1 notReadyAddresses=2 ports=3
EndpointAddress: ip=1 targetRef=2 hostname=3 nodeName=4
EndpointsPort: name=1 port=2 protocol=3 appProtocol=4
EndpointSlice: metadata=1 endpoints=2 ports=3 addressType=4
Endpoint: addresses=1 conditions=2 hostname=3 targetRef=4 deprecatedTopology=5 nodeName=6 zone=7 hints=8
EndpointConditions: ready=1 serving=2 terminating=3
EndpointHints: forZones=1 forNodes=2
ForZone: name=1
ForNode: name=1
EndpointPort: name=1 protocol=2 port=3 appProtocol=4
CoreEvent: metadata=1 involvedObject=2 reason=3 message=4 source=5 firstTimestamp=6 lastTimestamp=7 count=8 type=9 eventTime=10
    series=11 action=12 related=13 reportingComponent=14 reportingInstance=15
Event: metadata=1 eventTime=2 series=3 reportingController=4 reportingInstance=5 action=6 reason=7 regarding=8 related=9
    note=10 type=11 deprecatedSource=12 deprecatedFirstTimestamp=13 deprecatedLastTimestamp=14 deprecatedCount=15
EventSource: component=1 host=2
EventSeries: count=1 lastObservedTime=2
Lease: metadata=1 spec=2
LeaseSpec: holderIdentity=1 leaseDurationSeconds=2 acquireTime=3 renewTime=4 leaseTransitions=5 strategy=6 preferredHolder=7
IPAddress: metadata=1 spec=2
IPAddressSpec: parentRef=1
ParentReference: group=1 resource=2 namespace=3 name=4
ServiceCIDR: metadata=1 spec=2 status=3
ServiceCIDRSpec: cidrs=1
ServiceCIDRStatus: conditions=1
TokenRequest: metadata=1 spec=2 status=3
TokenRequestSpec: audiences=1 boundObjectRef=3 expirationSeconds=4
TokenRequestStatus: token=1 expirationTimestamp=2
BoundObjectReference: kind=1 apiVersion=2 name=3 uid=4
"""


class NotProtobuf(ValueError):
    """The bytes are not an encoded object, or of a kind this server does not read in this encoding."""


@cache
def _fields() -> Mapping[str, Mapping[int, str]]:
    found: dict[str, dict[int, str]] = {}
    current: dict[int, str] = {}
    for line in _NUMBERS.splitlines():
        head, colon, rest = line.partition(":")
        if colon:
            current = found[head] = {}
        for pair in (rest if colon else line).split():
            name, _, number = pair.partition("=")
            current[int(number)] = name
    return found


def reads(struct: Struct) -> bool:
    """This kind can be read."""
    return struct.name in _fields()


def numbers_of(struct: Struct) -> Mapping[int, str]:
    """Fields by their numbers. Raises KeyError for a kind that cannot be read."""
    return _fields()[struct.name]


def read_object(struct: Struct, body: bytes) -> Document:
    """An object with its kind and apiVersion, from `k8s\\0` and a runtime.Unknown. Raises NotProtobuf."""
    if not body.startswith(_MAGIC) or not reads(struct):
        raise NotProtobuf("not a Kubernetes protobuf object of a known kind")
    try:
        envelope = dict(_messages(body[len(_MAGIC) :]))
        header = dict(_messages(_as_bytes(envelope.get(1, b""))))
        document = _message(struct, _as_bytes(envelope.get(2, b"")), 0)
        kind, version = (_as_bytes(header.get(number, b"")).decode() for number in (2, 1))
    except (IndexError, UnicodeDecodeError, OverflowError) as error:
        raise NotProtobuf(f"malformed: {error}") from None
    return {**({"kind": kind} if kind else {}), **({"apiVersion": version} if version else {}), **document}


def read_delete_options(body: bytes) -> Document:
    """DeleteOptions, as far as this server honours them. Raises NotProtobuf."""
    try:
        if not body.startswith(_MAGIC):
            raise NotProtobuf("not a Kubernetes protobuf object")
        raw = _as_bytes(dict(_messages(body[len(_MAGIC) :])).get(2, b""))
        fields = dict(_messages(raw))
        found: Document = {}
        if 1 in fields:
            found["gracePeriodSeconds"] = _signed(fields[1])
        if 2 in fields:
            conditions = dict(_messages(_as_bytes(fields[2])))
            names = {1: "uid", 2: "resourceVersion"}
            found["preconditions"] = {names[n]: _as_bytes(v).decode() for n, v in conditions.items() if n in names}
        if 5 in fields:
            found["dryRun"] = [_as_bytes(fields[5]).decode()]
    except (IndexError, UnicodeDecodeError) as error:
        raise NotProtobuf(f"malformed: {error}") from None
    return found


def _messages(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """(field number, value) of one message, in order. Raises IndexError when it is cut short."""
    position = 0
    while position < len(data):
        key, position = _varint(data, position)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, position = _varint(data, position)
            yield number, value
            continue
        if kind == _BYTES:
            length, position = _varint(data, position)
        elif kind in (_FIXED64, _FIXED32):
            length = 8 if kind == _FIXED64 else 4
        else:
            raise NotProtobuf(f"unknown wire type {kind}")
        if position + length > len(data):
            raise IndexError("message is cut short")
        yield number, data[position : position + length]
        position += length


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2**64 - 1), position
        shift += 7
        if shift > 63:
            raise NotProtobuf("number too long")


def _as_bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise NotProtobuf("a number where bytes belong")
    return value


def _signed(value: int | bytes) -> int:
    if not isinstance(value, int):
        raise NotProtobuf("bytes where a number belongs")
    return value - 2**64 if value >= 2**63 else value


def _message(struct: Struct, data: bytes, depth: int) -> Document:
    if depth > _DEEPEST or struct.name not in _fields():
        raise NotProtobuf(f"{struct.name} cannot be read")
    names = _fields()[struct.name]
    found: Document = {}
    for number, value in _messages(data):
        name = names.get(number)
        if name is None:
            continue
        shape = struct.fields[name].shape
        if isinstance(shape, ListOf):
            found.setdefault(name, []).append(_value(shape.element, value, depth))
        elif isinstance(shape, MapOf):
            entry = dict(_messages(_as_bytes(value)))
            key = _as_bytes(entry.get(1, b"")).decode()
            found.setdefault(name, {})[key] = _value(shape.value, entry.get(2, b""), depth)
        else:
            found[name] = _value(shape, value, depth)
    return found


def _value(shape: Shape, value: int | bytes, depth: int) -> Json:  # noqa: PLR0911 - one line per kind of leaf
    if isinstance(shape, Struct):
        return _message(shape, _as_bytes(value), depth + 1)
    match shape:
        case Scalar.INT32 | Scalar.INT64:
            return _signed(value)
        case Scalar.BOOL:
            return bool(value)
        case Scalar.BYTES:
            return base64.b64encode(_as_bytes(value)).decode()
        case Scalar.TIME | Scalar.MICRO_TIME:
            return _time(_as_bytes(value), micro=shape is Scalar.MICRO_TIME)
        case Scalar.INT_OR_STRING:
            fields = dict(_messages(_as_bytes(value)))
            return _as_bytes(fields.get(3, b"")).decode() if fields.get(1) else _signed(fields.get(2, 0))
        case Scalar.ANY:
            return decode(_as_bytes(dict(_messages(_as_bytes(value))).get(1, b"null")))
    return _as_bytes(value).decode()


def _time(data: bytes, *, micro: bool) -> str | None:
    fields = dict(_messages(data))
    if not fields:
        return None
    seconds, nanos = _signed(fields.get(1, 0)), _signed(fields.get(2, 0))
    if not -62_135_596_800 <= seconds < 253_402_300_800:
        raise NotProtobuf("time out of range")
    moment = datetime.fromtimestamp(seconds, UTC).replace(microsecond=nanos // 1000)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")
