"""Debian's own kernel in QEMU, without hardware virtualization: one job in, files out.

Never KVM: where it is nested it may open and then crawl. `cx16` is off because QEMU 7.2 emulates that instruction in
a way that Linux 6.12 now and then panics on.
"""

import subprocess
import tarfile
from pathlib import Path

RESULTS_BYTES = 16 << 20
MEMORY_MB = 1024
PROCESSORS = "1"
"""Other machines are emulated at the same time: a second processor would cost more than it gains."""
KERNEL_ARGUMENTS = "console=ttyS0 quiet panic=-1 mitigations=off nokaslr"


class GuestFailed(Exception):
    """The machine did not come to the end of its job; the text has the end of what it said."""


def run_in_guest(root: Path, kernel: Path, job: Path, out: Path, *, seconds: float) -> str:
    """Boot, run `job`/job.sh with that directory as its own, and unpack what it left in its `out`; the console's text.

    root: a disk image of build_root.sh. kernel: a directory of build_kernel.sh. Raises GuestFailed when the job's
    status is not 0, the kernel panicked, or all this takes longer than `seconds`.
    """
    console, job_disk, results = out / "console", out / "job.tar", out / "results.tar"
    with tarfile.open(job_disk, "w") as archive:
        archive.add(job, arcname=".")
    with results.open("wb") as file:
        file.truncate(RESULTS_BYTES)
    disks = [(root, True), (kernel / "modules.img", True), (job_disk, True), (results, False)]
    command = ["qemu-system-x86_64", "-machine", "q35", "-accel", "tcg,thread=multi,tb-size=256"]
    command += ["-cpu", "max,-cx16", "-smp", PROCESSORS, "-m", str(MEMORY_MB), "-nodefaults", "-no-user-config"]
    command += ["-display", "none", "-no-reboot", "-nic", "none", "-serial", f"file:{console}"]
    command += ["-kernel", str(kernel / "vmlinuz"), "-initrd", str(kernel / "initrd"), "-append", KERNEL_ARGUMENTS]
    command += ["-object", "rng-random,filename=/dev/urandom,id=random", "-device", "virtio-rng-pci,rng=random"]
    for number, (path, read_only) in enumerate(disks):
        access = "readonly=on,file.locking=off" if read_only else "readonly=off"
        command += ["-drive", f"if=none,id=disk{number},format=raw,file={path},{access}"]
        command += ["-device", f"virtio-blk-pci,drive=disk{number}"]
    problem = _run(command, seconds)
    said = console.read_text(errors="replace") if console.exists() else ""
    if problem or "Kernel panic" in said or "guest: status 0" not in said:
        raise GuestFailed("\n".join([problem or "the job failed", *said.splitlines()[-40:]]))
    with tarfile.open(results) as archive:
        archive.extractall(out)
    return said


def _run(command: list[str], seconds: float) -> str:
    """What went wrong with QEMU itself; subprocess kills it when time is up."""
    try:
        result = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        return f"not done after {seconds:.0f} s"
    return f"QEMU ended with {result.returncode}: {result.stderr.strip()}" if result.returncode else ""
