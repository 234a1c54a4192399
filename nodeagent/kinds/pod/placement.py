"""The schemas of scheduling constraints. Nothing is scheduled here: they are stored and shown as sent."""

from nodeagent.kinds.description.shared import read_shapes

SHAPES = read_shapes(r"""
Affinity = io.k8s.api.core.v1
  nodeAffinity     *NodeAffinity #1
  podAffinity      *PodAffinity #2
  podAntiAffinity  *PodAntiAffinity #3

Toleration = io.k8s.api.core.v1
  key                string #1
  operator           string #2
  value              string #3
  effect             string #4
  tolerationSeconds  *int64 #5

TopologySpreadConstraint = io.k8s.api.core.v1
  maxSkew             int32! required #1
  topologyKey         string! required #2
  whenUnsatisfiable   string! required #3
  labelSelector       *LabelSelector #4
  minDomains          *int32 #5
  nodeAffinityPolicy  *string #6
  nodeTaintsPolicy    *string #7
  matchLabelKeys      [string] #8

NodeAffinity = io.k8s.api.core.v1
  requiredDuringSchedulingIgnoredDuringExecution   *NodeSelector #1
  preferredDuringSchedulingIgnoredDuringExecution  [PreferredSchedulingTerm] #2

PodAffinity = io.k8s.api.core.v1
  requiredDuringSchedulingIgnoredDuringExecution   [PodAffinityTerm] #1
  preferredDuringSchedulingIgnoredDuringExecution  [WeightedPodAffinityTerm] #2

PodAntiAffinity = io.k8s.api.core.v1
  requiredDuringSchedulingIgnoredDuringExecution   [PodAffinityTerm] #1
  preferredDuringSchedulingIgnoredDuringExecution  [WeightedPodAffinityTerm] #2

NodeSelector = io.k8s.api.core.v1 atomic
  nodeSelectorTerms  [NodeSelectorTerm]! required #1

PreferredSchedulingTerm = io.k8s.api.core.v1
  weight      int32! required #1
  preference  NodeSelectorTerm required #2

PodAffinityTerm = io.k8s.api.core.v1
  labelSelector      *LabelSelector #1
  namespaces         [string] #2
  topologyKey        string! required #3
  namespaceSelector  *LabelSelector #4
  matchLabelKeys     [string] #5
  mismatchLabelKeys  [string] #6

WeightedPodAffinityTerm = io.k8s.api.core.v1
  weight           int32! required #1
  podAffinityTerm  PodAffinityTerm required #2

NodeSelectorTerm = io.k8s.api.core.v1 atomic
  matchExpressions  [NodeSelectorRequirement] #1
  matchFields       [NodeSelectorRequirement] #2

NodeSelectorRequirement = io.k8s.api.core.v1
  key       string! required #1
  operator  string! required #2
  values    [string] #3
""")
