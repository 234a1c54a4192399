"""What is imported at the start reads no authorities, and what is made afterwards has them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
PROGRAM = """
import os, ssl
from nodeagent.runtime.imports import import_all

import_all(["aiohttp.connector"])
from aiohttp import connector

held = connector._SSL_CONTEXT_VERIFIED.cert_store_stats()["x509"]
print(held, ssl.create_default_context().cert_store_stats()["x509"], os.environ.get("SSL_CERT_FILE"), "SSL_CERT_DIR" in os.environ)
"""


@pytest.mark.skipif(not BUNDLE.exists(), reason="no package ca-certificates")
@pytest.mark.parametrize("given", [None, str(BUNDLE)])
def test_authorities_are_read_when_a_context_needs_them(given: str | None) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SSL_CERT_")}
    if given is not None:
        environment["SSL_CERT_FILE"] = given
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True, text=True, env=environment)
    at_import, later, file, directory = done.stdout.split()
    assert int(at_import) == 0
    assert int(later) > 50
    assert (file, directory) == (str(given), "False")
