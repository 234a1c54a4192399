"""What every long-running program of ours uses: log lines, metrics, HTTP listeners, systemd, signals, imports.

Nothing here depends on the purpose of the program.
"""
