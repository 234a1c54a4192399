"""Configuration: options, the layers that set them, and what is wrong with them.

`load_config` takes a file (our own NodeAgentConfiguration or kube-proxy's KubeProxyConfiguration), the environment and
the flags, and returns a `LoadedConfig`: a frozen `AgentConfig` plus the origin of every value; or raises `ConfigError`
with all errors. Only the command line and the composition root import this package; every other part takes the plain
values that it needs. pydantic is not used outside it.

Reading order: options.py (what can be set), values.py (how a value is written), load.py (how layers are merged).
"""

from nodeagent.config.agent_config import AgentConfig
from nodeagent.config.config_problems import ConfigError, ConfigProblem, IgnoredField, Origin
from nodeagent.config.durations import Duration
from nodeagent.config.load import LoadedConfig, load_config
from nodeagent.config.options import (
    ConntrackConfig,
    DataplaneConfig,
    LoggingConfig,
    NodeConfig,
    ProcessConfig,
    ReportingConfig,
    SourceConfig,
    TrafficConfig,
)
from nodeagent.config.values import (
    BindAddress,
    DetectLocalMode,
    EndpointsApi,
    LogFormat,
    LogLevel,
    PodNames,
    TableOwnership,
)

__all__ = [
    "AgentConfig",
    "BindAddress",
    "ConfigError",
    "ConfigProblem",
    "ConntrackConfig",
    "DataplaneConfig",
    "DetectLocalMode",
    "Duration",
    "EndpointsApi",
    "IgnoredField",
    "LoadedConfig",
    "LogFormat",
    "LogLevel",
    "LoggingConfig",
    "NodeConfig",
    "Origin",
    "PodNames",
    "ProcessConfig",
    "ReportingConfig",
    "SourceConfig",
    "TableOwnership",
    "TrafficConfig",
    "load_config",
]
