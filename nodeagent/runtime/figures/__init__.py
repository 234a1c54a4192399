"""Metrics, and how they are written for Prometheus: for every part that has a `/metrics`.

`instruments` hold the values; `exposition` writes them with prometheus-client, which is loaded at the first scrape.
"""
