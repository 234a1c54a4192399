"""How the agent tells people and machines how it is: log lines, systemd, health, metrics, events."""
