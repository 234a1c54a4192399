"""Reports the state of the agent to people and machines: log lines, systemd, health, metrics, events."""
