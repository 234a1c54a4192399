"""Figures for Prometheus: counted while the agent works, put into Prometheus's text when somebody asks.

`kube_proxy_figures` has the names and meanings of kube-proxy, `agent_figures` our own; what they are counted in and how they are
written is in `nodeagent.runtime.figures`.
"""
