"""Configuration: options, the layers that set them, and what is wrong with them.

`load_config` takes a file (our own NodeAgentConfiguration or kube-proxy's KubeProxyConfiguration), the environment and
the flags, and returns a `LoadedConfig`: a frozen `AgentConfig` plus the origin of every value; or raises `ConfigError`
with all errors. Only the command line and the composition root import this package; every other part takes the plain
values that it needs. pydantic is not used outside it.

Reading order: options.py (what can be set), values.py (how a value is written), load.py (how layers are merged).
"""
