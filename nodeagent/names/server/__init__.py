"""The process that answers queries: its sockets and privileges. It knows only what the agent sends it.

It is a separate process because answers must not wait for the agent's other work: with another busy thread in the same
interpreter, an answer takes 5 ms instead of 0.1.
"""
