"""A lab under load and random faults, watched by laws.

`records` is what is written down, `laws` says what must hold of it (pure), `schedule` makes the steps from a seed and `shrink`
shortens a list of steps that fails (pure). `stage` is the lab that the steps change, `witnesses` are its clients.
"""
