"""Requests to the API server, under client-go's names."""

from collections.abc import Iterator, Mapping
from datetime import datetime

from nodeagent.runtime.figures.instruments import Histogram, Instrument, counter, gauge

REQUEST_SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
"""client-go's (component-base/metrics/prometheus/restclient/metrics.go)."""


class ClientFigures:
    """Counts requests, and measures until their answers begin."""

    def __init__(self) -> None:
        self._requests = counter("rest_client_requests_total", "Requests to the API server", "code", "host", "method")
        self._seconds = Histogram(
            "rest_client_request_duration_seconds",
            "Time until the API server answered",
            REQUEST_SECONDS,
            ("verb", "host"),
        )
        self._ends = gauge(
            "nodeagent_credential_expiration_timestamp_seconds",
            "When a certificate or token that the connection to the API server needs expires",
            "credential",
        )

    def requested(self, method: str, host: str, code: str, seconds: float) -> None:
        """Called for each request to the API server."""
        self._requests.add(code, host, method)
        self._seconds.observe(seconds, method, host)

    def credentials_seen(self, ends: Mapping[str, datetime]) -> None:
        """Called now and then with the end of each credential, by what it is."""
        self._ends.values = {(what,): end.timestamp() for what, end in ends.items()}

    def instruments(self) -> Iterator[Instrument]:
        """Yields all of them, as they are now."""
        yield from (self._requests, self._seconds, self._ends)
