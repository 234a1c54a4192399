"""Service (core/v1): row, schema, defaults and columns. `validation` has its rules, `kept_addresses` which addresses and ports
it needs or keeps, `life` how both are part of a write."""

from nodeagent.kinds.description.documents import Document, Json
from nodeagent.kinds.description.formats import dns_label
from nodeagent.kinds.description.printing import AGE, NONE, Column, Printer, name_and_age, pairs
from nodeagent.kinds.description.resources import Resource
from nodeagent.kinds.description.shared import read_shapes
from nodeagent.kinds.service.life import ServiceLife
from nodeagent.kinds.service.validation import WORDS, validate_service, validate_service_update, warn_of_service
from nodeagent.model.objects import DEFAULT_AFFINITY_SECONDS

SHAPES = read_shapes(r"""
ServicePort = io.k8s.api.core.v1 : ServicePort contains information on service's port.
  name         string #1 : The name of this port within the service. This must be a DNS_LABEL. All ports within a ServiceSpec must have unique names.
  protocol     string default=TCP #2 : The IP protocol for this port. Supports "TCP", "UDP", and "SCTP". Default is TCP.
  appProtocol  *string #6 : The application protocol for this port.
  port         int32! required #3 : The port that will be exposed by this service.
  targetPort   int-or-string #4 : Number or name of the port to access on the pods targeted by the service.
  nodePort     int32 #5 : The port on each node on which this service is exposed when type is NodePort or LoadBalancer.

ClientIPConfig = io.k8s.api.core.v1 : ClientIPConfig represents the configurations of Client IP based session affinity.
  timeoutSeconds  *int32 #1 : timeoutSeconds specifies the seconds of ClientIP type session sticky time.

SessionAffinityConfig = io.k8s.api.core.v1 : SessionAffinityConfig represents the configurations of session affinity.
  clientIP  *ClientIPConfig #1 : clientIP contains the configurations of Client IP based session affinity.

ServiceSpec = io.k8s.api.core.v1 : ServiceSpec describes the attributes that a user creates on a service.
  ports                          [ServicePort] keys=port,protocol merge=port #1 : The list of ports that are exposed by this service. More info: https://kubernetes.io/docs/concepts/services-networking/service/#virtual-ips-and-service-proxies
  selector                       {string} atomic #2 : Route service traffic to pods with label keys and values matching this selector. If empty or not present, the service is assumed to have an external process managing its endpoints, which Kubernetes will not modify. Only applies to types ClusterIP, NodePort, and LoadBalancer. Ignored if type is ExternalName. More info: https://kubernetes.io/docs/concepts/services-networking/service/
  clusterIP                      string #3 : clusterIP is the IP address of the service and is usually assigned randomly. If an address is specified manually, is in-range (as per system configuration), and is not in use, it will be allocated to the service; otherwise creation of the service will fail. This field may not be changed through updates unless the type field is also being changed to ExternalName (which requires this field to be blank) or the type field is being changed from ExternalName (in which case this field may optionally be specified, as describe above).  Valid values are "None", empty string (""), or a valid IP address. Setting this to "None" makes a "headless service" (no virtual IP), which is useful when direct endpoint connections are preferred and proxying is not required.  Only applies to types ClusterIP, NodePort, and LoadBalancer. If this field is specified when creating a Service of type ExternalName, creation will fail. This field will be wiped when updating a Service to type ExternalName. More info: https://kubernetes.io/docs/concepts/services-networking/service/#virtual-ips-and-service-proxies
  clusterIPs                     [string] #18 : ClusterIPs is a list of IP addresses assigned to this service, and are usually assigned randomly.
  type                           string #4 : type determines how the Service is exposed. Defaults to ClusterIP. Valid options are ExternalName, ClusterIP, NodePort, and LoadBalancer. "ClusterIP" allocates a cluster-internal IP address for load-balancing to endpoints. Endpoints are determined by the selector or if that is not specified, by manual construction of an Endpoints object or EndpointSlice objects. If clusterIP is "None", no virtual IP is allocated and the endpoints are published as a set of endpoints rather than a virtual IP. "NodePort" builds on ClusterIP and allocates a port on every node which routes to the same endpoints as the clusterIP. "LoadBalancer" builds on NodePort and creates an external load-balancer (if supported in the current cloud) which routes to the same endpoints as the clusterIP. "ExternalName" aliases this service to the specified externalName. Several other fields do not apply to ExternalName services. More info: https://kubernetes.io/docs/concepts/services-networking/service/#publishing-services-service-types
  externalIPs                    [string] #5 : externalIPs is a list of IP addresses for which nodes in the cluster will also accept traffic for this service.  These IPs are not managed by Kubernetes.  The user is responsible for ensuring that traffic arrives at a node with this IP.  A common example is external load-balancers that are not part of the Kubernetes system.
  sessionAffinity                string #7 : Supports "ClientIP" and "None". Used to maintain session affinity. Enable client IP based session affinity. Must be ClientIP or None. Defaults to None.
  loadBalancerIP                 string #8 : Only applies to Service Type: LoadBalancer. The address to ask a load balancer for. Deprecated.
  loadBalancerSourceRanges       [string] #9 : If specified, traffic through the load-balancer will be restricted to the specified client IPs.
  externalName                   string #10 : externalName is the external reference that discovery mechanisms will return as an alias for this service.
  externalTrafficPolicy          string #11 : externalTrafficPolicy describes how nodes distribute service traffic they receive on one of the Service's externally-facing addresses.
  healthCheckNodePort            int32 #12 : healthCheckNodePort specifies the healthcheck nodePort for the service.
  publishNotReadyAddresses       bool #13 : publishNotReadyAddresses indicates that any agent which deals with endpoints for this Service should disregard any indications of ready/not-ready.
  sessionAffinityConfig          *SessionAffinityConfig #14 : sessionAffinityConfig contains the configurations of session affinity.
  ipFamilies                     [string] #19 : IPFamilies is a list of IP families (e.g. IPv4, IPv6) assigned to this service.
  ipFamilyPolicy                 *string #17 : IPFamilyPolicy represents the dual-stack-ness requested or required by this Service.
  allocateLoadBalancerNodePorts  *bool #20 : allocateLoadBalancerNodePorts defines if NodePorts will be automatically allocated for services with type LoadBalancer.
  loadBalancerClass              *string #21 : loadBalancerClass is the class of the load balancer implementation this Service belongs to.
  internalTrafficPolicy          *string #22 : InternalTrafficPolicy describes how nodes distribute service traffic they receive on the ClusterIP.
  trafficDistribution            *string #23 : TrafficDistribution offers a way to express preferences for how traffic is distributed to Service endpoints.

PortStatus = io.k8s.api.core.v1 : PortStatus represents the error condition of a service port.
  port      int32! required #1 : Port is the port number of the service port of which status is recorded here.
  protocol  string! required #2 : Protocol is the protocol of the service port of which status is recorded here.
  error     *string #3 : Error is to record the problem with the service port.

LoadBalancerIngress = io.k8s.api.core.v1 : LoadBalancerIngress represents the status of a load-balancer ingress point.
  ip        string #1 : IP is set for load-balancer ingress points that are IP based.
  hostname  string #2 : Hostname is set for load-balancer ingress points that are DNS based.
  ipMode    *string #3 : IPMode specifies how the load-balancer IP behaves: VIP or Proxy.
  ports     [PortStatus] #4 : Ports is a list of records of service ports.

LoadBalancerStatus = io.k8s.api.core.v1 : LoadBalancerStatus represents the status of a load-balancer.
  ingress  [LoadBalancerIngress] #1 : Ingress is a list containing ingress points for the load-balancer.

ServiceStatus = io.k8s.api.core.v1 : ServiceStatus represents the current status of a service.
  loadBalancer  LoadBalancerStatus #1 : LoadBalancer contains the current status of the load-balancer, if one is present.
  conditions    [Condition] keys=type merge=type #2 : Current service state.

Service = io.k8s.api.core.v1 : Service is a named abstraction of software service (for example, mysql) consisting of local port (for example 3306) that the proxy listens on, and the selector that determines which pods will answer requests sent through the proxy.
  metadata  ObjectMeta #1 : Standard object's metadata.
  spec      ServiceSpec #2 : Spec defines the behavior of a service.
  status    ServiceStatus #3 : Most recently observed status of the service. Populated by the system. Read-only.
""")


def default_service(service: Document) -> None:
    """Sets defaults: core/v1 SetDefaults_Service. Address families are set by the allocation."""
    spec = service["spec"]
    spec.setdefault("sessionAffinity", "None")
    kind = spec.setdefault("type", "ClusterIP")
    if spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    elif spec["sessionAffinity"] == "ClientIP":
        config = spec.get("sessionAffinityConfig") or {}
        if (config.get("clientIP") or {}).get("timeoutSeconds") is None:
            spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": DEFAULT_AFFINITY_SECONDS}}
    for port in spec.get("ports") or []:
        port.setdefault("protocol", "TCP")
        if port.get("targetPort") in (0, "", None):
            port["targetPort"] = port["port"]
    outside = kind in ("NodePort", "LoadBalancer") or (kind == "ClusterIP" and spec.get("externalIPs"))
    if outside:
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if kind in ("NodePort", "LoadBalancer", "ClusterIP") and spec.get("internalTrafficPolicy") is None:
        spec["internalTrafficPolicy"] = "Cluster"
    if kind == "LoadBalancer":
        if spec.get("allocateLoadBalancerNodePorts") is None:
            spec["allocateLoadBalancerNodePorts"] = True
        for entry in service["status"]["loadBalancer"].get("ingress") or []:
            if entry.get("ip") and entry.get("ipMode") is None:
                entry["ipMode"] = "VIP"


def _cells(document: Document, now: float) -> list[Json]:
    name, old = name_and_age(document, now)
    spec = document["spec"]
    internal = spec.get("clusterIP") or NONE
    ports = ",".join(
        f"{port['port']}:{port['nodePort']}/{port['protocol']}"
        if port.get("nodePort")
        else f"{port['port']}/{port['protocol']}"
        for port in spec.get("ports") or []
    )
    return [name, spec.get("type"), internal, _external(document), ports or NONE, old, pairs(spec.get("selector"))]


def _external(document: Document) -> str:
    spec = document["spec"]
    given = list(spec.get("externalIPs") or [])
    if spec.get("type") == "ExternalName":
        return spec.get("externalName") or NONE
    if spec.get("type") == "LoadBalancer":
        entries = document["status"]["loadBalancer"].get("ingress") or []
        found = [entry.get("ip") or entry.get("hostname") for entry in entries] + given
        return ",".join(filter(None, found)) or "<pending>"
    return ",".join(given) or NONE


PRINTER = Printer(
    (
        Column("Type", described_by="spec.type"),
        Column("Cluster-IP", described_by="spec.clusterIP"),
        Column("External-IP", described_by="spec.externalIPs"),
        Column("Port(s)", described_by="spec.ports"),
        AGE,
        Column("Selector", described_by="spec.selector", priority=1),
    ),
    _cells,
)


ROWS = (
    Resource(
        plural="services",
        place="services/specs",
        singular="service",
        returns_deleted=True,
        creates_on_update=True,
        kind="Service",
        struct=SHAPES["Service"],
        words=WORDS,
        short_names=("svc",),
        categories=("all",),
        printer=PRINTER,
        has_status=True,
        name_check=dns_label,
        default=default_service,
        validate=validate_service,
        validate_update=validate_service_update,
        warnings=warn_of_service,
        fields=("spec.clusterIP", "spec.type"),
        storage_hash="0/CO1lhkEBI=",
        own_life=ServiceLife(),
        holds_addresses=True,
    ),
)
