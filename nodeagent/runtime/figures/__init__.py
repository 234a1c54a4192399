"""What is counted, and how it is written for Prometheus: for every part that has a `/metrics`.

`instruments` are what is counted in; `exposition` writes them with prometheus-client, which is loaded at the first scrape.
"""
