"""Netlink for all parts that communicate with the kernel: one socket, and the messages of the subsystems in use, as bytes and values.

It knows the kernel's formats, but not services, our table or our interface. Errors are OSError.
"""
