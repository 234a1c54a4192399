"""Netlink for the parts that speak to the kernel: one socket, and the messages of the subsystems in use, as bytes and values.

It knows the kernel's formats and nothing of services, of our table or of our interface. Errors are OSError.
"""
