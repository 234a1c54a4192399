"""Taking kube-proxy's place in a running cluster, step by step, with a way back at every step.

The steps, and what of the cluster says which of them are done, are decided in `steps.py`, without input or output. What has
to change is in `placement.py`. `found.py` is what is read of the cluster, `work.py` does the steps, with kubectl.
"""
