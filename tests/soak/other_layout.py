"""An agent of another release: ``python -m tests.soak.other_layout MODULE …``. Its tables have the next schema, and a set of another
name; everything else is as in this tree."""

import inspect
import re
import runpy
import sys

from nodeagent.proxy.dataplane.program import schema
from tests.conformance.other_release import CHANGES


def change_layout() -> None:
    """Executes the changed source in the module, which must be before other modules import from it."""
    source = inspect.getsource(schema)
    for pattern, replacement in CHANGES[schema]:
        source, count = re.subn(pattern, replacement.format(schema=schema.SCHEMA + 1), source)
        assert count == 1, pattern
    exec(compile(source, str(schema.__file__), "exec"), vars(schema))


if __name__ == "__main__":
    assert "nodeagent.__main__" not in sys.modules
    change_layout()
    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
