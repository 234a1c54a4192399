"""Metrics for Prometheus: counters are updated while the agent works; the text is rendered at each scrape.

`kube_proxy_figures` has the names and meanings of kube-proxy, `agent_figures` our own; counters and rendering
are in `nodeagent.runtime.figures`.
"""
