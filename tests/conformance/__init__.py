"""`make conformance`: Kubernetes' own end-to-end tests of the network, beside nodeagent and beside kube-proxy, in real clusters."""
