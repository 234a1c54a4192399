"""The checks of `nodeagent check`: what each one looks for on a node, and how it judges what it finds.

Only `kernel_facts` reads the kernel. The rest is pure and judges values, so that recorded rule sets can be judged too.
"""
