"""What travels as bytes, each format in one place: the kernel's netlink messages, DNS messages, and YAML.

Packed and read here, decided elsewhere. Nothing here knows a Service.
"""
