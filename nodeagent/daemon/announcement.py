"""Log lines when a configuration takes effect."""

import logging
import os

from nodeagent.config.load import LoadedConfig
from nodeagent.config.values import LogFormat
from nodeagent.runtime.logs.setup import set_up_logging

logger = logging.getLogger(__name__)


def announce(loaded: LoadedConfig) -> None:
    """Sets up logging as configured, and logs warnings and options without effect."""
    config = loaded.config
    set_up_logging(
        getattr(logging, config.logging.level.upper()),
        as_json=config.logging.format is LogFormat.JSON,
        journald="JOURNAL_STREAM" in os.environ,
    )
    for warning in loaded.warnings:
        logger.warning("config: %s", warning)
    for field in loaded.ignored:
        logger.warning("config: %s is ignored: %s", field.key, field.reason)
