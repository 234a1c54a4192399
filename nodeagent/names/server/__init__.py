"""The process that answers: its sockets, its queries, its privileges. It knows only what it is fed.

It is one of its own because answers must not wait for the agent's other work: with another thread busy in one interpreter
an answer takes 5 ms instead of 0.1.
"""
