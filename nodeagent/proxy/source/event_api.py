"""Sends Event objects, and tells the sender whether to retry after a failure."""

from collections.abc import Awaitable, Mapping
from typing import Protocol

from nodeagent.model.problem import Retryable
from nodeagent.proxy.source.client.api_errors import (
    CredentialsError,
    KubeError,
    ServerFailedError,
    StatusError,
    ThrottledError,
    UnauthorizedError,
)


class JsonClient(Protocol):
    """Requests with a body."""

    def request_json(self, method: str, path: str, body: object, *, content_type: str) -> Awaitable[bytes]: ...


class EventApi:
    """Sends Events with an open client."""

    def __init__(self, client: JsonClient) -> None:
        self._client = client

    async def send(self, method: str, path: str, body: Mapping[str, object], content_type: str) -> tuple[int, str]:
        """Sends a request; returns the HTTP status and, unless it is 2xx, the server's error text.

        Raises Retryable if there was no answer, or one that may be different the next time.
        """
        try:
            await self._client.request_json(method, path, body, content_type=content_type)
        except (UnauthorizedError, ThrottledError, ServerFailedError, CredentialsError) as error:
            raise Retryable(str(error)) from error
        except StatusError as error:
            return error.code, str(error)
        except KubeError as error:
            raise Retryable(str(error)) from error
        return 200, ""
