"""What commands ask of a producer and of control: the answers as values, or a BatonError with one sentence.

`cli/http/requests.py` sends each request and repeats it while the service is unavailable.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from cli.http.receipts import MarkerPosition, Markers, Receipt, Rejected, RequestTooLarge
from cli.http.requests import Requests, decoded, error_for, http_client, sentence
from cli.http.sse import ServerSentEvent
from shared.errors import BatonError
from shared.model.rejects import UNREADABLE
from shared.model.routing import StreamTable, parse_table

FIRST_CONTACT_S = 2.0
"""How long a refused connection is retried before the service has answered: it may be about to start."""
PAGE = 1000
"""Rows per page of a list."""
NDJSON = "application/x-ndjson"


class BatonClient:
    """Calls one service."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    def __repr__(self) -> str:
        return f"<BatonClient of {self._requests!r}>"

    @property
    def retries(self) -> int:
        """How many requests were repeated."""
        return self._requests.retries

    # the producer

    async def table(self) -> tuple[StreamTable, str]:
        """The producer's current stream table, and the cluster that it is in, empty if that is not known."""
        response = await self._requests.send("GET", "/table")
        return parse_table(response.content), response.headers.get("baton-cluster", "")

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
        response = await self._requests.send(
            "POST", "/fragments", content=body, headers=headers, accept=accept
        )
        if response.status_code == 400:
            # the whole body was one fragment, so this is the fragment's reject
            return Receipt(rejected=[Rejected(0, UNREADABLE, sentence(response))])
        if response.status_code == 413:
            raise RequestTooLarge(sentence(response))
        # 200 and 422 carry the same receipt
        receipt: Receipt = decoded(response, Receipt)
        # 422 with a receipt means: every fragment was rejected. Without one it is about the request itself
        if response.status_code == 422 and (receipt.accepted or not receipt.rejected):
            raise error_for(response)
        return receipt

    async def check_markers(self) -> None:
        """Returns if this client may write markers; writes none. Raises NotAllowed."""
        # the producer checks the key first, and then rejects a marker without a time
        response = await self._requests.send("POST", "/markers", json={}, accept=(422,))
        if response.status_code != 422:
            raise BatonError(f"{response.url} is not a Baton service: it accepts a marker without a time")

    async def post_markers(self, time_ms: int) -> list[MarkerPosition]:
        """Writes a marker into every stream and returns their positions."""
        markers: Markers = decoded(
            await self._requests.send("POST", "/markers", json={"time": time_ms}), Markers
        )
        return markers.markers

    # any service

    async def headers(self, path: str) -> Mapping[str, str]:
        """The headers of the response at `path`, by names in lower case."""
        return (await self._requests.send("GET", path)).headers

    # control

    async def get(
        self, path: str, params: Mapping[str, Any] | Sequence[tuple[str, str]] | None = None
    ) -> Any:
        """The JSON at `path`. Raises NotFound, InvalidInput, Unavailable, … by the status of the response."""
        return decoded(await self._requests.send("GET", path, params=params), Any)

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
                raise BatonError(f"{self._requests.url}{path} does not return a list named {name!r}")
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
        return await self._start(path, parameters, params=params)

    async def cancel(self, what: str, name: str, reason: str = "") -> dict[str, Any]:
        """Cancels one of the `runs` or `operations`, or deletes one of the `groups`, and returns it."""
        params = {"reason": reason} if reason else {}
        response = await self._requests.send("DELETE", f"/{what}/{quote(name, safe='')}", params=params)
        cancelled: dict[str, Any] = decoded(response, dict[str, Any])
        return cancelled

    async def operate(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Starts an operation (202), or returns what it would do (200, with `dry_run`)."""
        return await self._start("/operations", request)

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON answer of a queue; `body` is JSON, or bytes with a line per item."""
        how: dict[str, Any] = {} if body is None else {"json": body}
        if isinstance(body, bytes):
            how = {"content": body, "headers": {"content-type": NDJSON}}
        return decoded(await self._requests.send(method, path, **how), Any)

    async def act_on_queue(self, queue: str, act: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Has control purge or redrive a queue, and returns what was done."""
        return await self._start(f"/queues/{quote(queue, safe='')}/{act}", body)

    async def _start(self, path: str, body: Mapping[str, Any], **request: Any) -> dict[str, Any]:
        # control starts nothing twice under one key, so the request can be repeated when its answer is lost
        key = {"idempotency-key": uuid.uuid4().hex}
        response = await self._requests.send("POST", path, json=dict(body), headers=key, **request)
        started: dict[str, Any] = decoded(response, dict[str, Any])
        return started

    def listen(
        self, path: str, params: Mapping[str, Any], last_event_id: str
    ) -> AsyncGenerator[ServerSentEvent]:
        """Server-sent events at `path` that follow `last_event_id`, until the server ends the response.

        Not retried: raises Unavailable when the connection fails or the service is unavailable, and the
        caller resumes.
        """
        return self._requests.listen(path, params, last_event_id)


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
    async with http_client(url, connections=connections, bearer=bearer) as http:
        yield BatonClient(Requests(http, patience_s=patience_s, connect_patience_s=connect_patience_s))
