"""The same targets as the law of hostile bytes, led by what code they reach: `make fuzz`, no test of its own.

Usage: coverage_guided.py TARGET [libFuzzer option...]; without a target, what targets there are. What reaches more code than
what came before is added to build/fuzz/TARGET, and what fails beside it.
"""

import sys
from importlib import import_module
from pathlib import Path

atheris = import_module("atheris")  # `make fuzz` installs it, for nothing else

with atheris.instrument_imports(include=["nodeagent"]):
    from tests.harness.fuzzing.targets import TARGETS

FOUND = Path("build/fuzz")


def main(arguments: list[str]) -> None:
    known = {target.file_name: target for target in TARGETS}
    if not arguments or arguments[0] not in known:
        sys.exit(f"which? {' '.join(known)}")
    target = known[arguments[0]]
    found = FOUND / target.file_name
    found.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate((*target.seeds, *target.corpus())):
        (found / f"seed-{number}").write_bytes(seed)
    options = ["-max_len=20000", "-timeout=30", "-rss_limit_mb=1024", f"-artifact_prefix={FOUND}/{target.file_name}-"]
    atheris.Setup([sys.argv[0], *options, *arguments[1:], str(found)], target.check)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
