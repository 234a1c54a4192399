"""What Vagrant does with its machines, done with a machine in a container: an archive is uploaded, and install.sh run."""

import io
import os
import subprocess
import tarfile
import time
from pathlib import Path

from .conftest import package
from .machine import Machine

PROJECT = Path(__file__).parents[3] / "vagrant"
NETWORK = "192.168.56"
UPLOAD = "/home/vagrant/nodeagent.tar"
PROGRAM = "/root/install.sh"
SECONDS = 600.0


def make_credentials(state: Path, **settings: str) -> Path:
    """What the Vagrantfile makes on the computer it is read on; a directory for each kind of machine."""
    home = {"VAGRANT_HOME": state / "home", "VAGRANT_DOTFILE_PATH": state / "project", "HOME": state}
    own = {"VAGRANT_CHECKPOINT_DISABLE": "1", "VAGRANT_NO_PLUGINS": "1", **settings}
    env = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", **own, **{name: str(at) for name, at in home.items()}}
    subprocess.run(["vagrant", "validate", "--ignore-provider"], cwd=PROJECT, env=env, check=True, capture_output=True)
    return state / "project" / "nodeagent"


def archive(credentials: Path) -> bytes:
    """What a machine with these credentials is given."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        tar.add(package(1), "nodeagent.deb")
        for directory, name in ((PROJECT / "guest", "guest"), (credentials, "credentials")):
            for path in sorted(directory.iterdir()):
                tar.add(path, f"{name}/{path.name}")
    return out.getvalue()


def begin_provisioning(machine: Machine, upload: bytes, **settings: object) -> str:
    """The unit in which install.sh runs then."""
    home = machine.root / UPLOAD.lstrip("/")
    home.parent.mkdir(parents=True, exist_ok=True)
    home.write_bytes(upload)
    machine.write(PROGRAM, (PROJECT / "install.sh").read_text())
    given = [f"--setenv={key}={value}" for key, value in {**settings, "NETWORK": NETWORK, "OWN_CLUSTER": "yes"}.items()]
    unit = f"provision-{time.monotonic_ns()}.service"
    machine.systemctl("reset-failed")
    begin = ["systemd-run", f"--unit={unit}", "--property=RemainAfterExit=yes", *given]
    machine.run(*begin, "--setenv=PATH=/usr/sbin:/usr/bin:/sbin:/bin", "bash", PROGRAM)
    return unit


def end_provisioning(machine: Machine, unit: str) -> None:
    """Wait until install.sh has ended well."""
    machine.wait_until(
        lambda: machine.show(unit, "SubState") in ("exited", "failed"), f"the end of {PROGRAM}", seconds=SECONDS
    )
    assert machine.show(unit, "SubState") == "exited", "\n".join(machine.journal(unit))
