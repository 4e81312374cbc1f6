"""The command line's only HTTP client: calls the producer and control, retries, translates errors.

Every response becomes a value or a BatonError with one sentence for a person. Only `Unavailable` (connection
errors, 429, 502, 503, 504) is retried, and only in `_send`, with capped jittered back-off that honours
`Retry-After`. `listen` does not retry: its caller resumes. The only file of `cli/` that imports httpx.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import msgspec

from cli.http.problems import sentence_of
from cli.http.receipts import MarkerPosition, Markers, Receipt, Rejected, RequestTooLarge
from cli.http.retry_after import parse_retry_after
from cli.http.sse import ServerSentEvent, SseParser
from cli.terminal.local_stack import tls_for
from shared.backoff import Backoff
from shared.errors import BatonError, Conflict, InvalidInput, NotFound, Unavailable
from shared.model.rejects import UNREADABLE
from shared.model.routing import StreamTable, parse_table
from shared.service.loopback import is_loopback
from shared.service.tls import client_context, tls_fault

FIRST_CONTACT_S = 2.0
"""How long a refused connection is retried before the service has answered: it may be about to start."""
PAGE = 1000
"""Rows per page of a list."""
NDJSON = "application/x-ndjson"


class NotAllowed(InvalidInput):
    """The service does not allow this request, for example because the write key is wrong."""


_ERRORS: dict[int, type[BatonError]] = {
    **dict.fromkeys((401, 403), NotAllowed),
    **dict.fromkeys((429, 502, 503, 504), Unavailable),
    404: NotFound,
    409: Conflict,
}
"""What a status means; any other 4xx is InvalidInput, the rest BatonError. Only Unavailable is retried."""


class BatonClient:
    """Calls one service; retries each call for up to `patience_s`, and counts repeated requests in `retries`.

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
        return f"BatonClient({str(self._http.base_url)!r}, retries={self.retries})"

    # the producer

    async def table(self) -> StreamTable:
        """The producer's current stream table."""
        return parse_table((await self._send("GET", "/table")).content)

    async def post_fragments(self, body: bytes) -> Receipt:
        """Posts NDJSON; returns which fragments Kafka acknowledged and which the producer rejected.

        Retried as a whole while the producer is unavailable, so fragments need ids. Raises RequestTooLarge
        (413), Unavailable when patience ends, another BatonError on any other response.
        """
        return await self._post(body, NDJSON, accept=(413, 422))

    async def post_fragment(self, body: bytes) -> Receipt:
        """Like `post_fragments`, for one JSON object that may span several lines.

        A body that is not JSON is reported as rejected with the reason `unreadable`.
        """
        return await self._post(body, "application/json", accept=(400, 413, 422))

    async def _post(self, body: bytes, content_type: str, *, accept: tuple[int, ...]) -> Receipt:
        headers = {"content-type": content_type}
        response = await self._send("POST", "/fragments", content=body, headers=headers, accept=accept)
        if response.status_code == 400:
            # the whole body was one fragment, so this is the fragment's reject
            return Receipt(rejected=[Rejected(0, UNREADABLE, _sentence(response))])
        if response.status_code == 413:
            raise RequestTooLarge(_sentence(response))
        # 200 and 422 carry the same receipt
        receipt: Receipt = _decode(response, Receipt)
        # 422 with a receipt means: every fragment was rejected. Without one it is about the request itself
        if response.status_code == 422 and (receipt.accepted or not receipt.rejected):
            raise _error_for(response)
        return receipt

    async def check_markers(self) -> None:
        """Returns if this client may write markers; writes none. Raises NotAllowed."""
        # the producer checks the key first, and then rejects a marker without a time
        response = await self._send("POST", "/markers", json={}, accept=(422,))
        if response.status_code != 422:
            raise BatonError(f"{response.url} is not a Baton service: it accepts a marker without a time")

    async def post_markers(self, time_ms: int) -> list[MarkerPosition]:
        """Writes a marker into every stream and returns their positions."""
        markers: Markers = _decode(await self._send("POST", "/markers", json={"time": time_ms}), Markers)
        return markers.markers

    # any service

    async def headers(self, path: str) -> Mapping[str, str]:
        """The headers of the response at `path`, by names in lower case."""
        return (await self._send("GET", path)).headers

    # control

    async def get(
        self, path: str, params: Mapping[str, Any] | Sequence[tuple[str, str]] | None = None
    ) -> Any:
        """The JSON at `path`. Raises NotFound, InvalidInput, Unavailable, … by the status of the response."""
        return _decode(await self._send("GET", path, params=params), Any)

    async def pages(
        self, path: str, name: str, after: str, params: Mapping[str, str | int] | None = None
    ) -> dict[str, Any]:
        """The list object at `path` with all pages of its array `name`; `after` names the cursor field."""
        every: list[dict[str, Any]] = []
        cursor: dict[str, str | int] = {}
        while True:
            page = await self.get(path, {**(params or {}), "limit": PAGE, **cursor})
            rows = page.get(name) if isinstance(page, dict) else None
            if not isinstance(rows, list):
                raise BatonError(f"{self._http.base_url}{path} does not return a list named {name!r}")
            every += rows
            # a list that control can sort names its next page itself
            own = "next" in page
            following = page["next"] if own else rows[-1][after] if len(rows) == PAGE else None
            if following is None:
                # the other fields, such as totals, are about the whole list on every page
                return {**page, name: every}
            cursor = {"cursor" if own else "after": following}

    async def start_run(
        self, job: str, group: str, parameters: Mapping[str, Any], timeout_s: float | None = None
    ) -> dict[str, Any]:
        """Starts a run of a job and returns it as control reports it (202)."""
        # quoted: the name comes from the command line and may hold a slash
        path = f"/jobs/{quote(job, safe='')}/runs"
        params = {"group": group} | ({} if timeout_s is None else {"timeout_s": str(timeout_s)})
        response = await self._send("POST", path, params=params, json=dict(parameters), repeatable=False)
        run: dict[str, Any] = _decode(response, dict[str, Any])
        return run

    async def cancel(self, what: str, name: str, reason: str = "") -> dict[str, Any]:
        """Cancels one of the `runs` or `operations`, and returns it."""
        params = {"reason": reason} if reason else {}
        response = await self._send("DELETE", f"/{what}/{quote(name, safe='')}", params=params)
        cancelled: dict[str, Any] = _decode(response, dict[str, Any])
        return cancelled

    async def operate(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Starts an operation (202), or returns what it would do (200, with `dry_run`)."""
        response = await self._send("POST", "/operations", json=dict(request), repeatable=False)
        operation: dict[str, Any] = _decode(response, dict[str, Any])
        return operation

    async def call(self, method: str, path: str, body: Any = None, *, repeatable: bool = True) -> Any:
        """The JSON answer of a queue; `body` is JSON, or bytes with a line per item."""
        how: dict[str, Any] = {} if body is None else {"json": body}
        if isinstance(body, bytes):
            how = {"content": body, "headers": {"content-type": NDJSON}}
        return _decode(await self._send(method, path, repeatable=repeatable, **how), Any)

    async def listen(
        self, path: str, params: Mapping[str, Any], last_event_id: str
    ) -> AsyncGenerator[ServerSentEvent]:
        """Server-sent events at `path` that follow `last_event_id`, until the server ends the response.

        Raises Unavailable when the connection fails or the service is unavailable; the caller resumes.
        """
        headers = {"accept": "text/event-stream"}
        if last_event_id:
            headers["last-event-id"] = last_event_id
        parser = SseParser()
        try:
            async with self._http.stream("GET", path, params=dict(params), headers=headers) as response:
                if not response.is_success:
                    await response.aread()
                    raise _error_for(response)
                async for chunk in response.aiter_bytes():
                    for event in parser.feed(chunk):
                        yield event
        except httpx.TransportError as error:
            raise self._unreachable(path, error) from None

    # one request

    async def _send(
        self, method: str, path: str, *, accept: tuple[int, ...] = (), repeatable: bool = True, **request: Any
    ) -> httpx.Response:
        """The response, 2xx or one of `accept`.

        With `repeatable=False` a request that may have reached the service is not sent again: a connection
        that breaks half-way leaves open whether the service acted on it.
        """
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
                # without a connection the service has not seen the request, so any request can be sent again
                unsent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
                if not (repeatable or unsent):
                    raise failure from None
                if unsent:
                    patience_s = self._connect_patience_s
            except httpx.HTTPError as error:
                raise BatonError(f"{self._http.base_url}{path}: {_text(error)}") from None
            else:
                self._connect_patience_s = self._patience_s
                if response.is_success or response.status_code in accept:
                    return response
                failure = _error_for(response)
                if not isinstance(failure, Unavailable):
                    raise failure
                least_s = parse_retry_after(response.headers.get("retry-after"), datetime.now(UTC))
            delay_s = max(backoff.next_s(), least_s)
            # do not sleep just to fail afterwards
            if self._clock() + delay_s > began + patience_s:
                raise failure
            self.retries += 1
            await self._sleep(delay_s)

    def _unreachable(self, path: str, error: httpx.TransportError) -> Unavailable:
        return Unavailable(f"{self._http.base_url}{path} does not answer: {_text(error)}")


@contextlib.asynccontextmanager
async def connect(
    url: str,
    *,
    patience_s: float = 2.0,
    connect_patience_s: float = FIRST_CONTACT_S,
    connections: int = 4,
    bearer: str = "",
) -> AsyncIterator[BatonClient]:
    """A client of the service at `url`, open during the block.

    `bearer`: what the service demands, a producer's write key or a token of control. A longer
    `connect_patience_s` is for a service that has answered another client. Raises InvalidInput.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidInput(f"{url!r} is not a URL like http://127.0.0.1:8000")
    http = httpx.AsyncClient(
        base_url=url,
        verify=client_context(tls_for(url)) if parts.scheme == "https" else True,
        headers={"authorization": f"Bearer {bearer}"} if bearer else {},
        timeout=httpx.Timeout(60, connect=5),
        limits=httpx.Limits(max_connections=connections, max_keepalive_connections=connections),
        # a proxy from the environment cannot reach this machine's loopback
        trust_env=not is_loopback(parts.hostname),
    )
    async with http:
        yield BatonClient(http, patience_s=patience_s, connect_patience_s=connect_patience_s)


def _decode(response: httpx.Response, shape: Any) -> Any:
    try:
        return msgspec.json.decode(response.content, type=shape)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BatonError(f"{response.url} is not a Baton service: {error}") from None


def _error_for(response: httpx.Response) -> BatonError:
    kind = InvalidInput if response.is_client_error else BatonError
    return _ERRORS.get(response.status_code, kind)(_sentence(response))


def _sentence(response: httpx.Response) -> str:
    # a proxy or another service answers without a problem document
    bare = f"{response.request.method} {response.url} returned {response.status_code}"
    return sentence_of(response.content) or bare


def _text(error: Exception) -> str:
    return tls_fault(error) or str(error) or type(error).__name__
