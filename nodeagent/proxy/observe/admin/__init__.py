"""The admin socket: shows what the agent knows and believes, to commands on the same machine.

place            where the socket is, and which agent has it
admin_server     HTTP over it: queries, and the log level
admin_documents  the answers
journal          what the last passes did
admin_client     the other end, for commands
"""
