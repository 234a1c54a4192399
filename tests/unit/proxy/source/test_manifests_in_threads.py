"""Two agents of one process, the old and the new one at a reload, read their first manifests at the same time."""

import subprocess
import sys

RACE = """
import os, sys, threading
from nodeagent.proxy.source.manifests.manifests import parse_manifest

MANIFEST = b'''
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec: {clusterIP: 10.96.0.10, ports: [{name: http, port: 80}]}
'''

def first_manifests() -> None:
    sys.setswitchinterval(1e-6)
    together = threading.Barrier(8)
    def read() -> None:
        together.wait()
        parse_manifest("web.yaml", MANIFEST)
    readers = [threading.Thread(target=read) for _ in range(8)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()

for _ in range(12):
    child = os.fork()
    if not child:
        first_manifests()
        os._exit(0)
    if status := os.waitpid(child, 0)[1]:
        sys.exit(f"ended with {status}")
"""
"""Of the process that imported it nothing was read yet, so that each child reads its first."""


def test_first_manifests_are_read_in_threads_at_the_same_time() -> None:
    done = subprocess.run([sys.executable, "-c", RACE], capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")
