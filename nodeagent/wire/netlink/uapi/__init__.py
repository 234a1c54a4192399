"""Numbers of the kernel's interface, a file for each of its headers, under the names they have there. Pure.

They are plain integers, not enums: loops over hundreds of thousands of elements use them.
"""
