"""The process around the agent: one single run, or a service that reloads its configuration and ends by a signal."""
