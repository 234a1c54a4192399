"""What of a credential has expired, read from the token or the certificate itself. Pure.

A server that refuses a credential says only 401, or breaks off the handshake.
"""

from datetime import datetime

from nodeagent.proxy.source.client.credentials import Credential
from nodeagent.runtime.validity import of_certificates, of_token


def expired(credential: Credential, now: datetime) -> str:
    """Returns what of the credential has expired, and when; empty if nothing is known to have expired."""
    shown = [] if credential.client_certificate is None else of_certificates(credential.client_certificate[0])[:1]
    ends = [("its token", of_token(credential.authorization)), *(("its client certificate", one) for one in shown)]
    found = (f"{what} expired at {one.ends:%Y-%m-%dT%H:%M:%SZ}" for what, one in ends if one and one.ends <= now)
    return ", ".join(found)
