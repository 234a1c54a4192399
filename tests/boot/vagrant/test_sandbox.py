"""Nothing of a sandbox outlives those who made it."""

import os
import signal
import time
from pathlib import Path

from .sandbox import Sandbox, sweep


def inhabitants(namespace: str) -> list[str]:
    """The processes of a namespace of processes."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and os.readlink(process / "ns" / "pid") == namespace:
                found.append((process / "comm").read_text().strip())
        except OSError:  # it has just ended
            continue
    return found


def namespace_of(sandbox: Sandbox) -> str:
    return str(os.readlink(f"/proc/{sandbox.first}/ns/pid"))


def test_leaving_it_ends_its_processes_and_removes_its_files(tmp_path: Path) -> None:
    with Sandbox(tmp_path) as sandbox:
        namespace = namespace_of(sandbox)
        assert "libvirtd" in inhabitants(namespace)
        assert sandbox.run("virsh", "-c", "qemu:///system", "list", "--name").stdout.strip() == ""
    assert inhabitants(namespace) == []
    assert list(tmp_path.iterdir()) == []


def test_the_next_run_removes_the_files_of_a_killed_run(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    run = os.fork()
    if run == 0:
        with Sandbox(tmp_path) as sandbox:
            os.write(writer, namespace_of(sandbox).encode())
            time.sleep(600)
    os.close(writer)
    namespace = os.read(reader, 100).decode()
    os.close(reader)
    assert "libvirtd" in inhabitants(namespace)
    os.kill(run, signal.SIGKILL)
    os.waitpid(run, 0)
    deadline = time.monotonic() + 60
    while inhabitants(namespace) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert inhabitants(namespace) == []
    assert len(list(tmp_path.iterdir())) == 1
    sweep(tmp_path)
    assert list(tmp_path.iterdir()) == []
