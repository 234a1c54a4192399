"""Names that are not the cluster's: asked from other resolvers, checked, and remembered for a while.

`resolve.Upstream` is the way in: one query message in, one complete response message out, whatever upstream does.
Every bound is a number in `limits`.
"""
