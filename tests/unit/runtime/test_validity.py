"""From when and until when certificates of openssl and tokens are valid, and when that is announced."""

import ssl
import subprocess
from base64 import urlsafe_b64encode
from datetime import UTC, datetime, timedelta
from pathlib import Path

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodeagent.runtime.certificates import certificate, make_authority, make_certificate
from nodeagent.runtime.validity import Validity, of_certificate, of_certificates, of_token

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def as_openssl_says(path: Path) -> Validity:
    command = ["openssl", "x509", "-in", str(path), "-noout", "-dates"]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
    times = (ssl.cert_time_to_seconds(line.partition("=")[2]) for line in said.splitlines())
    return Validity(*(datetime.fromtimestamp(seconds, UTC) for seconds in times))


def test_certificates_of_openssl(tmp_path: Path) -> None:
    """One of an authority, one with names, one that ends after 2049 (another form of time), and all in one file."""
    make_authority(tmp_path, days=3650)
    make_certificate(tmp_path, "server", "/CN=server", "subjectAltName=IP:192.0.2.1", days=90)
    make_certificate(tmp_path, "late", "/O=system:nodes/CN=late", days=20_000)
    paths = [certificate(tmp_path, name) for name in ("ca", "server", "late")]
    whole = b"a comment\n" + b"\n".join(path.read_bytes() for path in paths)

    found = of_certificates(whole)

    assert found == [as_openssl_says(path) for path in paths]
    assert found[2].ends.year > 2049
    assert (
        of_certificates(b"") == of_certificates(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n") == []
    )


@given(st.binary(max_size=200))
def test_text_that_is_not_a_certificate_is_rejected(data: bytes) -> None:
    assert of_certificate(data) is None
    assert of_certificate(b"\x30\x82\x01\x00" + data) is None


def test_a_truncated_certificate_is_rejected(tmp_path: Path) -> None:
    make_authority(tmp_path)
    der = subprocess.run(
        ["openssl", "x509", "-in", str(certificate(tmp_path, "ca")), "-outform", "DER"],
        check=True, capture_output=True, timeout=60,
    ).stdout  # fmt: skip
    assert of_certificate(der) is not None
    assert {of_certificate(der[:length]) for length in range(len(der))} == {None}


@pytest.mark.parametrize("algorithm", ["HS256", "HS512"])
def test_a_token_with_an_end(algorithm: str) -> None:
    begins, ends = NOW, NOW + timedelta(hours=1)
    token = jwt.encode({"iat": begins, "exp": ends, "sub": "x"}, "k" * 64, algorithm)
    assert of_token(f"Bearer {token}") == Validity(begins, ends)
    assert of_token("Bearer " + jwt.encode({"exp": ends}, "k" * 64, algorithm)) == Validity(None, ends)


@pytest.mark.parametrize(
    "claims", [b'{"sub":"x"}', b'{"exp":"soon"}', b'{"exp":1e99}', b'{"exp":null}', b"[]", b"\xff", b""]
)
def test_other_tokens_have_no_end(claims: bytes) -> None:
    assert of_token(f"Bearer a.{urlsafe_b64encode(claims).decode()}.c") is None


@pytest.mark.parametrize("authorization", [None, "Bearer opaque", "Basic dTpw", "Bearer a.b.c", "Bearer a.é.c"])
def test_a_text_that_is_not_a_token_has_no_end(authorization: str | None) -> None:
    assert of_token(authorization) is None


@pytest.mark.parametrize(
    ("life", "notice"),
    [
        pytest.param(timedelta(days=365), timedelta(days=7), id="a year: a week before"),
        pytest.param(timedelta(days=90), timedelta(days=7), id="three months"),
        pytest.param(timedelta(days=30), timedelta(days=3), id="a month: three days before"),
        pytest.param(timedelta(hours=1), timedelta(minutes=6), id="an hour: the kubelet renews it after 48 minutes"),
        pytest.param(None, timedelta(days=7), id="unknown"),
    ],
)
def test_when_an_end_is_near(life: timedelta | None, notice: timedelta) -> None:
    validity = Validity(None if life is None else NOW - life, NOW)
    assert not validity.is_ending(NOW - notice - timedelta(seconds=1))
    assert validity.is_ending(NOW - notice)
    assert validity.is_ending(NOW + timedelta(days=1))
