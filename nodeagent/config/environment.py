"""Environment variables: ``NODEAGENT_`` and the path of an option in capitals (``NODEAGENT_NODE_NAME``)."""

import re
from collections.abc import Mapping

from nodeagent.config.config_problems import ConfigProblem, Origin
from nodeagent.config.keys import KEYS, parse_text
from nodeagent.config.layer import Layer, Setting

CONFIG_VARIABLE = "NODEAGENT_CONFIG"
_OF_OTHERS = frozenset({CONFIG_VARIABLE, "NODEAGENT_LAB_DIR"})
"""Not options: the file that has them, and where labs are."""

# The kubelet announces a Service called "nodeagent" to every pod of its namespace in variables like these.
_SERVICE_LINK = re.compile(r"NODEAGENT_(SERVICE_(HOST|PORT(_.*)?)|PORT(_\d+_.*)?)")


def read_environment(variables: Mapping[str, str]) -> Layer:
    """What the environment says. A variable of our prefix that names no option is a warning: it may be another's."""
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
        elif variable.startswith("NODEAGENT_") and variable not in _OF_OTHERS and not _SERVICE_LINK.fullmatch(variable):
            layer.warnings.append(f"env {variable} names no option and has no effect")
    return layer
