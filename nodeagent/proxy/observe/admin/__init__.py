"""The admin socket: what the agent knows and believes, for commands on the same machine.

place       where the socket is, and who has it
server      HTTP over it: questions, and the log level
documents   what is answered
journal     what the last passes did
client      the other end, for commands
"""
