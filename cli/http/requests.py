"""Sends requests to one service: repeats them while it is unavailable, and translates its errors.

A failed request becomes a BatonError with one sentence for a person. Only `Unavailable` (connection errors,
429, 502, 503, 504) is tried again, with capped jittered back-off that honours `Retry-After`. An answer may be
lost after the service has acted, so every request must be safe to repeat: fragments have ids, a second marker
changes nothing, and what starts something has an `Idempotency-Key`. Used by `client.py`. The only file of
`cli/` that imports httpx.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec

from cli.http.problems import sentence_of
from cli.http.retry_after import parse_retry_after
from cli.http.sse import ServerSentEvent, SseParser
from cli.terminal.local_stack import tls_for
from shared.backoff import Backoff
from shared.errors import BatonError, Conflict, InvalidInput, NotFound, Unavailable
from shared.service.loopback import is_loopback
from shared.service.tls import client_context, tls_fault


class NotAllowed(InvalidInput):
    """The service does not allow this request, for example because the write key is wrong."""


_ERRORS: dict[int, type[BatonError]] = {
    **dict.fromkeys((401, 403), NotAllowed),
    **dict.fromkeys((429, 502, 503, 504), Unavailable),
    404: NotFound,
    409: Conflict,
}
"""What a status means; any other 4xx is InvalidInput, the rest BatonError. Only Unavailable is retried."""


class Requests:
    """Requests to one service; each is tried for up to `patience_s`, and `retries` counts the repeated ones.

    A service that refuses the connection, and has not answered yet, is tried for `connect_patience_s` only.
    `sleep`, `clock` (monotonic seconds) and `rng` are parameters so that tests need neither time nor luck.
    """

    def __init__(
        self,
        http: httpx.AsyncClient,
        *,
        patience_s: float,
        connect_patience_s: float = math.inf,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
        rng: random.Random | None = None,
    ) -> None:
        self._http = http
        self._patience_s = patience_s
        # until the first answer
        self._connect_patience_s = min(patience_s, connect_patience_s)
        self._sleep = sleep
        self._clock = clock
        self._rng = rng or random.Random()
        self.retries = 0

    def __repr__(self) -> str:
        return f"<Requests to {self.url}, {self.retries} repeated>"

    @property
    def url(self) -> str:
        """Where the service is."""
        return str(self._http.base_url)

    async def send(
        self, method: str, path: str, *, accept: tuple[int, ...] = (), **request: Any
    ) -> httpx.Response:
        """The response, 2xx or one of `accept`. Raises what its status means, or Unavailable."""
        # per call, not per client: an import of an hour has full patience for its last request too
        began = self._clock()
        backoff = Backoff(uniform=self._rng.random)
        while True:
            least_s, patience_s = 0.0, self._patience_s
            failure: BatonError
            try:
                response = await self._http.request(method, path, **request)
            except httpx.TransportError as error:
                failure = self._unreachable(path, error)
                if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout):
                    patience_s = self._connect_patience_s
            except httpx.HTTPError as error:
                raise BatonError(f"{self.url}{path}: {_text(error)}") from None
            else:
                self._connect_patience_s = self._patience_s
                if response.is_success or response.status_code in accept:
                    return response
                failure = error_for(response)
                if not isinstance(failure, Unavailable):
                    raise failure
                least_s = parse_retry_after(response.headers.get("retry-after"), datetime.now(UTC))
            delay_s = max(backoff.next_s(), least_s)
            # do not sleep just to fail afterwards
            if self._clock() + delay_s > began + patience_s:
                raise failure
            self.retries += 1
            await self._sleep(delay_s)

    async def listen(
        self, path: str, params: Mapping[str, Any], last_event_id: str
    ) -> AsyncGenerator[ServerSentEvent]:
        """Server-sent events at `path` that follow `last_event_id`, until the server ends the response.

        Not retried: raises Unavailable when the connection fails or the service is unavailable, and the
        caller resumes.
        """
        headers = {"accept": "text/event-stream"}
        if last_event_id:
            headers["last-event-id"] = last_event_id
        parser = SseParser()
        try:
            async with self._http.stream("GET", path, params=dict(params), headers=headers) as response:
                if not response.is_success:
                    await response.aread()
                    raise error_for(response)
                async for chunk in response.aiter_bytes():
                    for event in parser.feed(chunk):
                        yield event
        except httpx.TransportError as error:
            raise self._unreachable(path, error) from None

    def _unreachable(self, path: str, error: httpx.TransportError) -> Unavailable:
        return Unavailable(f"{self.url}{path} does not answer: {_text(error)}")


def http_client(url: str, *, connections: int = 4, bearer: str = "") -> httpx.AsyncClient:
    """The client of httpx for the service at `url`. Raises InvalidInput."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidInput(f"{url!r} is not a URL like http://127.0.0.1:8000")
    return httpx.AsyncClient(
        base_url=url,
        verify=client_context(tls_for(url)) if parts.scheme == "https" else True,
        headers={"authorization": f"Bearer {bearer}"} if bearer else {},
        timeout=httpx.Timeout(60, connect=5),
        limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
        # a proxy from the environment cannot reach this machine's loopback
        trust_env=not is_loopback(parts.hostname),
    )


def decoded(response: httpx.Response, shape: Any) -> Any:
    """The JSON of the response as `shape`. Raises BatonError."""
    try:
        return msgspec.json.decode(response.content, type=shape)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BatonError(f"{response.url} is not a Baton service: {error}") from None


def error_for(response: httpx.Response) -> BatonError:
    """What the status of the response means, with the sentence of its problem document."""
    kind = InvalidInput if response.is_client_error else BatonError
    return _ERRORS.get(response.status_code, kind)(sentence(response))


def sentence(response: httpx.Response) -> str:
    """The sentence of the response's problem document."""
    # a proxy or another service answers without a problem document
    bare = f"{response.request.method} {response.url} returned {response.status_code}"
    return sentence_of(response.content) or bare


def _text(error: Exception) -> str:
    return tls_fault(error) or str(error) or type(error).__name__
