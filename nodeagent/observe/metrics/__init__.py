"""Figures for Prometheus: counted while the agent works, put into Prometheus's text when somebody asks.

`instruments` are what is counted in. `kube_proxy_figures` has the names and meanings of kube-proxy, `agent_figures` our own;
`exposition` writes them with prometheus-client, which is loaded at the first scrape and not before.
"""
