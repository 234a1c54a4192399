"""Replaces kube-proxy in a running cluster, step by step, with a way back at every step.

`steps.py` decides which steps are done and which is next, without input or output. `placement.py` has the changes to
kube-proxy's DaemonSet, `found.py` the state that is read from the cluster; `work.py` does the steps, with kubectl.
"""
