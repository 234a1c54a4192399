"""Finds out what happens to a new connection on this node, and why: our rules, all other rules, and routes, in their
order.

Pure: rules, elements and settings are values that were read from the kernel; only routes are requested on the way, from
the `Router` that the caller passes.
"""
