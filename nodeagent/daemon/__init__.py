"""The life of the process around the agent: one run, or a service that reloads its configuration and ends by a signal."""
