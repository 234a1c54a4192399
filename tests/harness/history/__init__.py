"""What clients of API servers did and saw, and whether it could have been like that.

`records` is what is noted down, `rules` says what must hold between it and what the storage kept (pure), `truth` reads the
latter, `workload` makes clients and faults.
"""
