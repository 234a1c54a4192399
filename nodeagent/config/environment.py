"""Environment variables: ``NODEAGENT_`` and the path of an option in upper case (``NODEAGENT_NODE_NAME``)."""

import re
from collections.abc import Mapping

from nodeagent.config.config_problems import ConfigProblem, Origin
from nodeagent.config.keys import KEYS, parse_text
from nodeagent.config.layer import Layer, Setting

CONFIG_VARIABLE = "NODEAGENT_CONFIG"
_NO_OPTIONS = frozenset({CONFIG_VARIABLE, "NODEAGENT_LAB_DIR"})
"""Variables that are not options: the configuration file, and the directory of labs."""

# The kubelet announces a Service called "nodeagent" to every pod of its namespace in variables like these.
_SERVICE_LINK = re.compile(r"NODEAGENT_(SERVICE_(HOST|PORT(_.*)?)|PORT(_\d+_.*)?)")


def read_environment(variables: Mapping[str, str]) -> Layer:
    """Returns the settings of the environment. A variable with our prefix that names no option is only a warning:
    another program may use it."""
    layer = Layer()
    by_variable = {key.environment_variable: key for key in KEYS.values()}
    for variable, text in sorted(variables.items()):
        origin = Origin(f"env {variable}")
        key = by_variable.get(variable)
        if key is not None:
            try:
                layer.settings[key.path] = Setting(parse_text(key.form, text), origin, key.path)
            except ValueError as error:
                layer.problems.append(ConfigProblem(origin, key.path, str(error)))
        elif (
            variable.startswith("NODEAGENT_") and variable not in _NO_OPTIONS and not _SERVICE_LINK.fullmatch(variable)
        ):
            layer.warnings.append(f"env {variable} names no option and has no effect")
    return layer
