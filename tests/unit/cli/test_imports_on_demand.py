"""A command imports what it needs: with manifests it loads no client of the API, which takes as long as reading thousands of objects."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
from nodeagent.cli.main import main

main(sys.argv[1:], prog_name="nodeagent", standalone_mode=False)
print("aiohttp" in sys.modules)
"""
SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {clusterIP: 10.96.0.10, ports: [{port: 80}]}
"""


def test_a_plan_of_manifests_loads_no_client_of_the_api(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    (tmp_path / "new" / "web.yaml").write_text(SERVICE)
    arguments = ["plan", "--manifests", str(tmp_path / "new"), "--against", str(tmp_path / "old")]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], check=True, capture_output=True, text=True, timeout=60
    )
    assert "+ default/web" in done.stdout
    assert done.stdout.splitlines()[-1] == "False"
