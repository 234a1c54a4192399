"""Names outside the cluster: other resolvers are asked, their answers checked and cached.

`resolve.Upstream` is the entry: one query message in, one complete response message out, however upstream behaves. All
limits are in `limits`.
"""
