"""Moving the bytes of one request and its answer over HTTP. Nothing is ever sent twice."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

import httpx2

from orbit_sdk.credentials import Credentials
from orbit_sdk.errors import ConfigError, ConnectionLost
from orbit_sdk.version import USER_AGENT
from orbit_sdk.wire import Request, Response


class Transport(Protocol):
    """What a client needs. `timeout` is in seconds, for each step of the exchange; raises ConnectionLost."""

    def send(self, request: Request, *, timeout: float) -> Response: ...
    def close(self) -> None: ...


class AsyncTransport(Protocol):
    """The same for coroutines."""

    async def send(self, request: Request, *, timeout: float) -> Response: ...  # noqa: ASYNC109
    async def close(self) -> None: ...


def _headers(credentials: Credentials) -> dict[str, str]:
    return {
        "Authorization": f"Bearer {credentials.token}",
        "Accept": "application/json",
        "Accept-Encoding": "identity",
        "User-Agent": USER_AGENT,
    }


def _received(answer: httpx2.Response) -> Response:
    headers = {name.lower(): value for name, value in answer.headers.items()}
    return Response(status=answer.status_code, headers=headers, body=answer.content)


def _lost(request: Request, error: httpx2.RequestError) -> ConnectionLost:
    what = str(error) or type(error).__name__
    return ConnectionLost(f"no answer to {request.method} {request.path}: {what}")


class HttpTransport:
    """Keep-alive connections of httpx2; no retries, no redirects."""

    def __init__(self, credentials: Credentials) -> None:
        try:
            self._client = httpx2.Client(
                base_url=credentials.url, headers=_headers(credentials), follow_redirects=False
            )
        except httpx2.InvalidURL as error:
            raise ConfigError(f"{credentials.url!r} is not a URL: {error}") from None

    def send(self, request: Request, *, timeout: float) -> Response:
        try:
            answer = self._client.request(
                request.method,
                request.path,
                params=list(request.query) or None,
                content=request.body,
                headers=dict(request.headers),
                timeout=timeout + request.wait_seconds,
            )
        except httpx2.RequestError as error:
            raise _lost(request, error) from error
        return _received(answer)

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncHttpTransport:
    """The same for coroutines; connections belong to the event loop that made them."""

    def __init__(self, credentials: Credentials) -> None:
        try:
            self._client = httpx2.AsyncClient(
                base_url=credentials.url, headers=_headers(credentials), follow_redirects=False
            )
        except httpx2.InvalidURL as error:
            raise ConfigError(f"{credentials.url!r} is not a URL: {error}") from None

    async def send(self, request: Request, *, timeout: float) -> Response:  # noqa: ASYNC109 (given to httpx2)
        try:
            answer = await self._client.request(
                request.method,
                request.path,
                params=list(request.query) or None,
                content=request.body,
                headers=dict(request.headers),
                timeout=timeout + request.wait_seconds,
            )
        except httpx2.RequestError as error:
            raise _lost(request, error) from error
        return _received(answer)

    async def close(self) -> None:
        await self._client.aclose()
