"""What of a credential has expired, and when, is read from the credential."""

import json
from base64 import urlsafe_b64encode
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from nodeagent.proxy.source.client.credentials import Credential
from nodeagent.proxy.source.client.expiry import expired
from nodeagent.runtime.certificates import certificate, make_authority
from nodeagent.runtime.validity import of_certificates, of_token

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def token_end(authorization: str) -> datetime | None:
    found = of_token(authorization)
    return None if found is None else found.ends


def certificate_end(pem: bytes) -> datetime | None:
    return next((one.ends for one in of_certificates(pem)), None)


def token(claims: object) -> str:
    parts = ({"alg": "none"}, claims)
    return (
        "Bearer " + ".".join(urlsafe_b64encode(json.dumps(one).encode()).decode().rstrip("=") for one in parts) + ".s"
    )


def test_a_token_expires_at_the_time_it_names() -> None:
    ended = Credential(token({"exp": NOW.timestamp() - 1}))
    assert token_end(ended.authorization or "") == NOW - timedelta(seconds=1)
    assert expired(ended, NOW) == "its token expired at 2026-01-02T03:04:04Z"
    assert expired(ended, NOW - timedelta(seconds=2)) == ""


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer abc",
        "Basic a.b.c",
        "Bearer a.!.c",
        token({}),
        token([1]),
        token({"exp": "x"}),
        token({"exp": 1e300}),
    ],
)
def test_a_text_that_is_not_a_token_has_no_expiry(authorization: str) -> None:
    assert token_end(authorization) is None
    assert expired(Credential(authorization or None), NOW) == ""


def test_a_certificate_expires_at_the_time_it_names(tmp_path: Path) -> None:
    make_authority(tmp_path, days=30)
    pem = certificate(tmp_path, "ca").read_bytes()
    end = certificate_end(b"what others write before it\n" + pem)
    assert end is not None
    assert abs(end - datetime.now(UTC) - timedelta(days=30)) < timedelta(minutes=5)
    shown = Credential(None, (pem, b""))
    assert expired(shown, end - timedelta(seconds=1)) == ""
    assert expired(shown, end) == f"its client certificate expired at {end:%Y-%m-%dT%H:%M:%SZ}"


def test_a_year_of_four_digits(tmp_path: Path) -> None:
    """From 2050 on the time has another form (RFC 5280, 4.1.2.5)."""
    make_authority(tmp_path, days=36500)
    end = certificate_end(certificate(tmp_path, "ca").read_bytes())
    assert end is not None
    assert end.year > 2100


@pytest.mark.parametrize("pem", [b"", b"x", b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"])
def test_a_text_that_is_not_a_certificate_has_no_expiry(pem: bytes) -> None:
    assert certificate_end(pem) is None


def test_any_part_of_a_certificate_is_read_without_an_error(tmp_path: Path) -> None:
    make_authority(tmp_path)
    pem = certificate(tmp_path, "ca").read_bytes()
    for length in range(0, len(pem), 7):
        certificate_end(pem[:length] + b"\n-----END CERTIFICATE-----\n")
