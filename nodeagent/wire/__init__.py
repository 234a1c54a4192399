"""Wire formats, each in one place: the kernel's netlink messages, protobuf, DNS messages, and YAML.

This package packs and parses only. Nothing here knows a Service.
"""
