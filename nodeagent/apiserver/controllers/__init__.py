"""Controllers: loops that bring the stored objects to their desired state. Each follows the events of the store.

`controller_loop` is their common part; every other module has one task, which its first line states.
"""
