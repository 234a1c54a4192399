"""A server renews its certificate while it runs, and says when those expire that others must renew. All are openssl's."""

import asyncio
import logging
import shutil
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeagent.apiserver import certificate_watch
from nodeagent.apiserver.api import pki
from nodeagent.apiserver.certificate_watch import CertificateWatch
from nodeagent.runtime.certificates import make_certificate
from tests.contract.apiserver.conftest import DEADLINE_SECONDS, Api
from tests.contract.apiserver.test_metrics import Scrape
from tests.harness.etcd import Files

METRIC = "apiserver_certificate_expiration_timestamp_seconds"
ENDING_DAYS = 20
DAY = 86400.0


def served(api: Api) -> tuple[str, float]:
    """Serial number and end (seconds since 1970) of the certificate that a new connection gets, which must be accepted."""
    connection = api.connect()
    connection.connect()
    assert isinstance(connection.sock, ssl.SSLSocket)
    shown = connection.sock.getpeercert()
    connection.close()
    assert shown is not None
    return str(shown["serialNumber"]), ssl.cert_time_to_seconds(str(shown["notAfter"]))


def test_a_certificate_that_ends_is_renewed_while_the_server_runs(
    start: Callable[..., Api], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificate_watch, "LOOK_SECONDS", 0.2)
    api = start()
    credentials = api.server.credentials
    assert credentials is not None
    held = api.connect()
    held.request("GET", "/healthz", headers={"Authorization": f"Bearer {api.token}"})
    assert held.getresponse().read() == b"ok"
    first, ends = served(api)
    deadline = time.monotonic() + DEADLINE_SECONDS
    while Scrape(api).value(METRIC, certificate="server") != ends:
        assert time.monotonic() < deadline
        time.sleep(0.1)

    make_certificate(credentials.directory, "server", "/CN=old", "subjectAltName=IP:127.0.0.1", days=ENDING_DAYS)
    while served(api)[0] == first or Scrape(api).value(METRIC, certificate="server") != served(api)[1]:
        assert time.monotonic() < deadline
        time.sleep(0.1)

    assert served(api)[1] > time.time() + 300 * DAY
    held.request("GET", "/healthz", headers={"Authorization": f"Bearer {api.token}"})
    assert held.getresponse().read() == b"ok", "a connection that is open goes on"
    assert Scrape(api).value(METRIC, certificate="certificate authority") > time.time() + 3000 * DAY


def test_a_certificate_that_others_renew_is_reported_a_week_before_until_it_is_renewed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    credentials = pki.prepare(tmp_path / "pki", ["127.0.0.1"])
    (tmp_path / "etcd").mkdir()
    files = Files.make(tmp_path / "etcd")
    mine = Path(shutil.copy(files.client[0], tmp_path / "mine.crt"))
    now, renewed = time.time(), 0

    def renew() -> None:
        nonlocal renewed
        renewed += 1

    watch = CertificateWatch(
        credentials,
        credentials.server_context(),
        {"etcd client": mine, "etcd authority": files.authority, "missing": tmp_path / "nothing"},
        renew=renew,
        now=lambda: now,
    )

    def said() -> list[str]:
        caplog.clear()
        asyncio.run(watch.look())
        return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]

    def ends() -> dict[str, float]:
        [figure] = watch.instruments()
        return {labels[0]: value for labels, value in figure.values.items()}  # type: ignore[misc]

    assert said() == []
    assert ends().keys() == {"server", "certificate authority", "etcd client", "etcd authority"}
    client_ends = ends()["etcd client"]
    now = client_ends - 8 * DAY
    assert [line for line in said() if "etcd client" in line] == []
    assert renewed == 1, "the server renews its own 30 days before"
    now = client_ends - 6 * DAY
    [line] = [line for line in said() if "etcd client" in line]
    assert line.startswith("certificate etcd client: expires at ")
    assert line.endswith("replace --etcd-certfile and --etcd-keyfile: they are read again by themselves")
    assert [line for line in said() if "etcd client" in line] == [], "once a day"
    now += DAY
    assert [line for line in said() if "etcd client" in line]
    now = client_ends + DAY
    assert [line for line in said() if "certificate etcd client: expired at " in line]

    shutil.copy(credentials.authority, mine)  # one that ends years later
    now += DAY
    assert [line for line in said() if "etcd client" in line] == []
    assert ends()["etcd client"] > client_ends


def test_a_failed_renewal_is_reported_and_the_old_certificate_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    credentials = pki.prepare(tmp_path / "pki", ["127.0.0.1"])
    make_certificate(credentials.directory, "server", "/CN=old", days=ENDING_DAYS)
    context = credentials.server_context()
    monkeypatch.setenv("PATH", str(tmp_path))
    watch = CertificateWatch(
        credentials, context, {}, renew=lambda: pki.prepare(credentials.directory, ["127.0.0.1"]), now=time.time
    )

    asyncio.run(watch.look())

    assert "certificate server was not renewed" in caplog.text
    assert "openssl" in caplog.text
    [figure] = watch.instruments()
    assert figure.values[("server",)] < time.time() + 21 * DAY  # type: ignore[operator]
