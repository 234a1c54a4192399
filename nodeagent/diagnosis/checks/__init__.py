"""What `nodeagent check` looks for on a node, and what each thing it finds means.

Pure but for `kernel_facts`, which reads: judgements are made of values, so that recorded rule sets can be judged too.
"""
