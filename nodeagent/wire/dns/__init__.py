"""DNS messages as bytes (RFC 1035, 6891): reading queries, writing and cutting answers. Pure.

A name is in its uncompressed wire form, with the root's zero byte, in the letter case it was received in.
"""
