"""The package for arm64 on a Debian tree for arm64, by emulation: installed, asked, removed. No table can be programmed there."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.harness.source_tree import ROOT

EMULATOR = shutil.which("qemu-aarch64-static")
FORMATS = "binfmt_misc" in Path("/proc/filesystems").read_text()
PACKAGES = "?or(?essential,?exact-name(python3),?exact-name(nftables),?exact-name(procps),?exact-name(systemd))"
SECONDS = 600.0


@pytest.mark.skipif(EMULATOR is None, reason="no qemu-aarch64-static: apt-get install qemu-user-static")
@pytest.mark.skipif(not FORMATS, reason="this kernel has no binfmt_misc")
def test_the_package_is_installed_used_and_removed(tmp_path: Path) -> None:
    build = [str(ROOT / "systemd/packaging/build_deb.sh"), str(tmp_path / "deb"), "1", "deb12", "arm64"]
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHON": sys.executable}
    subprocess.run(build, env=env, check=True, capture_output=True)
    (package,) = (tmp_path / "deb").glob("*.deb")
    tree = tmp_path / "tree"
    source = subprocess.run(
        [ROOT / "tests/tools/archive_of.sh", "bookworm"], capture_output=True, text=True, check=True
    )
    unpack = ["mmdebstrap", "--quiet", "--mode=root", "--variant=extract", "--architectures=arm64"]
    subprocess.run([*unpack, f"--include={PACKAGES}", "bookworm", str(tree), source.stdout.strip()], check=True)
    script = Path(__file__).with_name("install_emulated.sh")
    printed = as_root_of_its_own(str(script), str(tree), str(package), str(EMULATOR))
    lines = printed.splitlines()
    assert lines[0] == "aarch64"
    assert any(line.startswith("ok: manifest directory") for line in lines), printed
    assert sum(line.startswith("nodeagent") and ":/var/lib/" in line for line in lines) == 2, printed
    assert not list((tree / "usr/lib/nodeagent").rglob("*.so"))


def as_root_of_its_own(*command: str) -> str:
    """What a command prints in user, mount and process namespaces of its own, where it is root of the first 65536 users."""
    unshare = ["unshare", "--user", "--mount", "--pid", "--fork", "--kill-child"]
    with subprocess.Popen(
        [*unshare, "bash", "-c", 'read -r; exec setpriv --reuid=0 --regid=0 --clear-groups "$@"', "", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        place = Path("/proc", str(process.pid))
        ours = Path("/proc/self/ns/user").readlink()
        deadline = time.monotonic() + SECONDS
        while (place / "ns/user").readlink() == ours:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        for kind in ("uid", "gid"):
            (place / f"{kind}_map").write_text("0 0 65536\n")
        printed = process.communicate("\n", timeout=SECONDS)[0]
    assert process.returncode == 0, printed
    return printed
