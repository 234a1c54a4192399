"""What becomes of a new connection on this node, and why: our rules, everybody's rules and the routes, in their order.

Pure: rules, elements and settings come in as values that were read from the kernel; only routes are asked for on the way,
through the `Router` that the caller brings along.
"""
