"""What every long-running program of ours has: log lines, figures, HTTP listeners, systemd, signals, imports.

Nothing here knows what the program is for.
"""
