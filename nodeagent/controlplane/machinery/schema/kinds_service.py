"""Service, Endpoints, EndpointSlice, ServiceCIDR and IPAddress (core/v1, discovery.k8s.io/v1, networking.k8s.io/v1)."""

KINDS = r"""
ServicePort = io.k8s.api.core.v1 : ServicePort contains information on service's port.
  name         string : The name of this port within the service. This must be a DNS_LABEL. All ports within a ServiceSpec must have unique names.
  protocol     string default=TCP : The IP protocol for this port. Supports "TCP", "UDP", and "SCTP". Default is TCP.
  appProtocol  *string : The application protocol for this port.
  port         int32! required : The port that will be exposed by this service.
  targetPort   int-or-string : Number or name of the port to access on the pods targeted by the service.
  nodePort     int32 : The port on each node on which this service is exposed when type is NodePort or LoadBalancer.

ClientIPConfig = io.k8s.api.core.v1 : ClientIPConfig represents the configurations of Client IP based session affinity.
  timeoutSeconds  *int32 : timeoutSeconds specifies the seconds of ClientIP type session sticky time.

SessionAffinityConfig = io.k8s.api.core.v1 : SessionAffinityConfig represents the configurations of session affinity.
  clientIP  *ClientIPConfig : clientIP contains the configurations of Client IP based session affinity.

ServiceSpec = io.k8s.api.core.v1 : ServiceSpec describes the attributes that a user creates on a service.
  ports                          [ServicePort] keys=port,protocol merge=port : The list of ports that are exposed by this service. More info: https://kubernetes.io/docs/concepts/services-networking/service/#virtual-ips-and-service-proxies
  selector                       {string} atomic : Route service traffic to pods with label keys and values matching this selector. If empty or not present, the service is assumed to have an external process managing its endpoints, which Kubernetes will not modify. Only applies to types ClusterIP, NodePort, and LoadBalancer. Ignored if type is ExternalName. More info: https://kubernetes.io/docs/concepts/services-networking/service/
  clusterIP                      string : clusterIP is the IP address of the service and is usually assigned randomly. If an address is specified manually, is in-range (as per system configuration), and is not in use, it will be allocated to the service; otherwise creation of the service will fail. This field may not be changed through updates unless the type field is also being changed to ExternalName (which requires this field to be blank) or the type field is being changed from ExternalName (in which case this field may optionally be specified, as describe above).  Valid values are "None", empty string (""), or a valid IP address. Setting this to "None" makes a "headless service" (no virtual IP), which is useful when direct endpoint connections are preferred and proxying is not required.  Only applies to types ClusterIP, NodePort, and LoadBalancer. If this field is specified when creating a Service of type ExternalName, creation will fail. This field will be wiped when updating a Service to type ExternalName. More info: https://kubernetes.io/docs/concepts/services-networking/service/#virtual-ips-and-service-proxies
  clusterIPs                     [string] : ClusterIPs is a list of IP addresses assigned to this service, and are usually assigned randomly.
  type                           string : type determines how the Service is exposed. Defaults to ClusterIP. Valid options are ExternalName, ClusterIP, NodePort, and LoadBalancer. "ClusterIP" allocates a cluster-internal IP address for load-balancing to endpoints. Endpoints are determined by the selector or if that is not specified, by manual construction of an Endpoints object or EndpointSlice objects. If clusterIP is "None", no virtual IP is allocated and the endpoints are published as a set of endpoints rather than a virtual IP. "NodePort" builds on ClusterIP and allocates a port on every node which routes to the same endpoints as the clusterIP. "LoadBalancer" builds on NodePort and creates an external load-balancer (if supported in the current cloud) which routes to the same endpoints as the clusterIP. "ExternalName" aliases this service to the specified externalName. Several other fields do not apply to ExternalName services. More info: https://kubernetes.io/docs/concepts/services-networking/service/#publishing-services-service-types
  externalIPs                    [string] : externalIPs is a list of IP addresses for which nodes in the cluster will also accept traffic for this service.  These IPs are not managed by Kubernetes.  The user is responsible for ensuring that traffic arrives at a node with this IP.  A common example is external load-balancers that are not part of the Kubernetes system.
  sessionAffinity                string : Supports "ClientIP" and "None". Used to maintain session affinity. Enable client IP based session affinity. Must be ClientIP or None. Defaults to None.
  loadBalancerIP                 string : Only applies to Service Type: LoadBalancer. The address to ask a load balancer for. Deprecated.
  loadBalancerSourceRanges       [string] : If specified, traffic through the load-balancer will be restricted to the specified client IPs.
  externalName                   string : externalName is the external reference that discovery mechanisms will return as an alias for this service.
  externalTrafficPolicy          string : externalTrafficPolicy describes how nodes distribute service traffic they receive on one of the Service's externally-facing addresses.
  healthCheckNodePort            int32 : healthCheckNodePort specifies the healthcheck nodePort for the service.
  publishNotReadyAddresses       bool : publishNotReadyAddresses indicates that any agent which deals with endpoints for this Service should disregard any indications of ready/not-ready.
  sessionAffinityConfig          *SessionAffinityConfig : sessionAffinityConfig contains the configurations of session affinity.
  ipFamilies                     [string] : IPFamilies is a list of IP families (e.g. IPv4, IPv6) assigned to this service.
  ipFamilyPolicy                 *string : IPFamilyPolicy represents the dual-stack-ness requested or required by this Service.
  allocateLoadBalancerNodePorts  *bool : allocateLoadBalancerNodePorts defines if NodePorts will be automatically allocated for services with type LoadBalancer.
  loadBalancerClass              *string : loadBalancerClass is the class of the load balancer implementation this Service belongs to.
  internalTrafficPolicy          *string : InternalTrafficPolicy describes how nodes distribute service traffic they receive on the ClusterIP.
  trafficDistribution            *string : TrafficDistribution offers a way to express preferences for how traffic is distributed to Service endpoints.

PortStatus = io.k8s.api.core.v1 : PortStatus represents the error condition of a service port.
  port      int32! required : Port is the port number of the service port of which status is recorded here.
  protocol  string! required : Protocol is the protocol of the service port of which status is recorded here.
  error     *string : Error is to record the problem with the service port.

LoadBalancerIngress = io.k8s.api.core.v1 : LoadBalancerIngress represents the status of a load-balancer ingress point.
  ip        string : IP is set for load-balancer ingress points that are IP based.
  hostname  string : Hostname is set for load-balancer ingress points that are DNS based.
  ipMode    *string : IPMode specifies how the load-balancer IP behaves: VIP or Proxy.
  ports     [PortStatus] : Ports is a list of records of service ports.

LoadBalancerStatus = io.k8s.api.core.v1 : LoadBalancerStatus represents the status of a load-balancer.
  ingress  [LoadBalancerIngress] : Ingress is a list containing ingress points for the load-balancer.

ServiceStatus = io.k8s.api.core.v1 : ServiceStatus represents the current status of a service.
  loadBalancer  LoadBalancerStatus : LoadBalancer contains the current status of the load-balancer, if one is present.
  conditions    [Condition] keys=type merge=type : Current service state.

Service = io.k8s.api.core.v1 : Service is a named abstraction of software service (for example, mysql) consisting of local port (for example 3306) that the proxy listens on, and the selector that determines which pods will answer requests sent through the proxy.
  metadata  ObjectMeta : Standard object's metadata.
  spec      ServiceSpec : Spec defines the behavior of a service.
  status    ServiceStatus : Most recently observed status of the service. Populated by the system. Read-only.

ObjectReference = io.k8s.api.core.v1 atomic : ObjectReference contains enough information to let you inspect or modify the referred object.
  kind             string : Kind of the referent.
  namespace        string : Namespace of the referent.
  name             string : Name of the referent.
  uid              string : UID of the referent.
  apiVersion       string : API version of the referent.
  resourceVersion  string : Specific resourceVersion to which this reference is made, if any.
  fieldPath        string : A part of the object, if this refers to one.

EndpointAddress = io.k8s.api.core.v1 atomic : EndpointAddress is a tuple that describes single IP address.
  ip         string! required : The IP of this endpoint. May not be loopback, link-local or link-local multicast.
  hostname   string : The Hostname of this endpoint.
  nodeName   *string : Node hosting this endpoint.
  targetRef  *ObjectReference : Reference to object providing the endpoint.

EndpointsPort = io.k8s.api.core.v1 atomic as=EndpointPort : EndpointPort is a tuple that describes a single port.
  name         string : The name of this port. This must match the 'name' field in the corresponding ServicePort.
  port         int32! required : The port number of the endpoint.
  protocol     string : The IP protocol for this port. Must be UDP, TCP, or SCTP. Default is TCP.
  appProtocol  *string : The application protocol for this port.

EndpointSubset = io.k8s.api.core.v1 : EndpointSubset is a group of addresses with a common set of ports.
  addresses          [EndpointAddress] : IP addresses which offer the related ports that are marked as ready.
  notReadyAddresses  [EndpointAddress] : IP addresses which offer the related ports but are not currently marked as ready.
  ports              [EndpointsPort] : Port numbers available on the related IP addresses.

Endpoints = io.k8s.api.core.v1 : Endpoints is a collection of endpoints that implement the actual service. Deprecated: use EndpointSlice.
  metadata  ObjectMeta : Standard object's metadata.
  subsets   [EndpointSubset] : The set of all endpoints is the union of all subsets.

EndpointConditions = io.k8s.api.discovery.v1 : EndpointConditions represents the current condition of an endpoint.
  ready        *bool : ready indicates that this endpoint is ready to receive traffic, according to whatever system is managing the endpoint.
  serving      *bool : serving indicates that this endpoint is able to receive traffic, regardless of terminating.
  terminating  *bool : terminating indicates that this endpoint is terminating.

ForZone = io.k8s.api.discovery.v1 : ForZone provides information about which zones should consume this endpoint.
  name  string! required : name represents the name of the zone.

ForNode = io.k8s.api.discovery.v1 : ForNode provides information about which nodes should consume this endpoint.
  name  string! required : name represents the name of the node.

EndpointHints = io.k8s.api.discovery.v1 : EndpointHints provides hints describing how an endpoint should be consumed.
  forZones  [ForZone] : forZones indicates the zone(s) this endpoint should be consumed by.
  forNodes  [ForNode] : forNodes indicates the node(s) this endpoint should be consumed by.

Endpoint = io.k8s.api.discovery.v1 : Endpoint represents a single logical "backend" implementing a service.
  addresses           [string]! required : addresses of this endpoint.
  conditions          EndpointConditions : conditions contains information about the current status of the endpoint.
  hostname            *string : hostname of this endpoint.
  targetRef           *ObjectReference : targetRef is a reference to a Kubernetes object that represents this endpoint.
  deprecatedTopology  {string} atomic : deprecatedTopology contains topology information part of the v1beta1 API.
  nodeName            *string : nodeName represents the name of the Node hosting this endpoint.
  zone                *string : zone is the name of the Zone this endpoint exists in.
  hints               *EndpointHints : hints contains information associated with how an endpoint should be consumed.

EndpointPort = io.k8s.api.discovery.v1 atomic : EndpointPort represents a Port used by an EndpointSlice.
  name         *string : name represents the name of this port.
  protocol     *string : protocol represents the IP protocol for this port. Must be UDP, TCP, or SCTP. Default is TCP.
  port         *int32 : port represents the port number of the endpoint.
  appProtocol  *string : The application protocol for this port.

EndpointSlice = io.k8s.api.discovery.v1 : EndpointSlice represents a set of service endpoints.
  metadata     ObjectMeta : Standard object's metadata.
  addressType  string! required : addressType specifies the type of address carried by this EndpointSlice: IPv4, IPv6 or FQDN.
  endpoints    [Endpoint]! required : endpoints is a list of unique endpoints in this slice. Each slice may include a maximum of 1000 endpoints.
  ports        [EndpointPort]! : ports specifies the list of network ports exposed by each endpoint in this slice.

ServiceCIDRSpec = io.k8s.api.networking.v1 : ServiceCIDRSpec define the CIDRs the user wants to use for allocating ClusterIPs for Services.
  cidrs  [string] : CIDRs defines the IP blocks in CIDR notation from which to assign service cluster IPs.

ServiceCIDRStatus = io.k8s.api.networking.v1 : ServiceCIDRStatus describes the current state of the ServiceCIDR.
  conditions  [Condition] keys=type merge=type : conditions holds an array of metav1.Condition that describe the state of the ServiceCIDR.

ServiceCIDR = io.k8s.api.networking.v1 : ServiceCIDR defines a range of IP addresses using CIDR format.
  metadata  ObjectMeta : Standard object's metadata.
  spec      ServiceCIDRSpec : spec is the desired state of the ServiceCIDR.
  status    ServiceCIDRStatus : status represents the current state of the ServiceCIDR.

ParentReference = io.k8s.api.networking.v1 : ParentReference describes a reference to a parent object.
  group      string : Group is the group of the object being referenced.
  resource   string required : Resource is the resource of the object being referenced.
  namespace  string : Namespace is the namespace of the object being referenced.
  name       string required : Name is the name of the object being referenced.

IPAddressSpec = io.k8s.api.networking.v1 : IPAddressSpec describe the attributes in an IP Address.
  parentRef  *ParentReference required : ParentRef references the resource that an IPAddress is attached to.

IPAddress = io.k8s.api.networking.v1 : IPAddress represents a single IP of a single IP Family.
  metadata  ObjectMeta : Standard object's metadata.
  spec      IPAddressSpec : spec is the desired state of the IPAddress.
"""
