"""A real Kubernetes cluster on this machine: etcd, a control plane, and nodes with kubelet, containerd and a network plugin.

Each node has a network, mount, process, host name and control group namespace of its own; the binaries are those of a release.
"""
