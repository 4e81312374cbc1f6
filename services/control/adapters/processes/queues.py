"""Asks a worker of the queue service, over HTTP: one of control's files that import httpx.

Any worker answers for all queues, so the next one is asked when one does not answer. But a worker that has
got a request to act may have carried it out: then no other is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from services.control.core.queues import (
    Act,
    DeadLetter,
    QueueConflict,
    QueueOutcomeUnknown,
    QueueRow,
    QueuesUnavailable,
    QueuesUnreachable,
    UnknownQueue,
)
from shared.errors import InvalidInput
from shared.model.names import DEAD
from shared.secret_file import SecretFile
from shared.service.tls import tls_fault

ANSWER_TIMEOUT_S = 5.0
ACT_TIMEOUT_S = 120.0
"""A redrive copies each dead letter: some ten thousand in this time."""
T = TypeVar("T")


class _Queues(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's answer to `GET /queues`."""

    queues: list[QueueRow]


class _Peeked(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's answer to `GET /queues/{q}/items`."""

    items: list[DeadLetter]


class _Ready(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's answer to a purge or a redrive."""

    ready: int


class _Request(NamedTuple):
    """A request to any worker."""

    method: str
    path: str
    body: Any = None


class HttpQueues:
    """A `QueueSource` that asks the workers at `urls` in turn, with the key in `key_file` if there is one."""

    def __init__(
        self, http: httpx.AsyncClient, urls: Sequence[str], key_file: SecretFile | None = None
    ) -> None:
        self._http = http
        self._urls = urls
        self._key_file = key_file

    def __repr__(self) -> str:
        return f"<HttpQueues at {', '.join(self._urls)}>"

    async def read(self) -> Sequence[QueueRow]:
        """See `QueueSource`."""
        return (await self._looked(_Request("GET", "/queues"), _Queues)).queues

    async def show(self, queue: str) -> QueueRow:
        """See `QueueSource`."""
        return await self._looked(_Request("GET", _path(queue)), QueueRow)

    async def letters(self, queue: str, limit: int) -> Sequence[DeadLetter]:
        """See `QueueSource`."""
        request = _Request("GET", f"{_path(queue + DEAD)}/items?limit={limit}")
        return (await self._looked(request, _Peeked)).items

    async def act(self, queue: str, act: Act, *, dry_run: bool) -> int:
        """See `QueueSource`."""
        request = _Request("POST", f"{_path(queue)}/{act}", {"dry_run": dry_run})
        if dry_run:
            return (await self._looked(request, _Ready)).ready
        failed = QueuesUnavailable()
        for url in self._urls:
            try:
                return _decoded(
                    await self._answer(url, request, ACT_TIMEOUT_S, QueueOutcomeUnknown), _Ready
                ).ready
            except QueuesUnreachable as error:
                failed = error
        raise failed

    async def _looked(self, request: _Request, kind: type[T]) -> T:
        """The first success of a request that changes nothing, so that every worker may be asked."""
        failed = QueuesUnavailable()
        for url in self._urls:
            try:
                return _decoded(await self._answer(url, request, ANSWER_TIMEOUT_S, QueuesUnavailable), kind)
            except QueuesUnavailable as error:
                failed = error
        raise failed

    async def _answer(
        self, url: str, request: _Request, within_s: float, lost: type[QueuesUnavailable]
    ) -> bytes:
        """The body of a success. Raises QueuesUnreachable, or `lost` if the worker may have got it."""
        method, path, body = request
        try:
            async with asyncio.timeout(within_s):
                answer = await self._http.request(method, f"{url}{path}", json=body, headers=self._shown())
        except (httpx.ConnectError, httpx.InvalidURL) as error:
            cause = f"{url}: {tls_fault(error) or str(error) or type(error).__name__}"
            raise QueuesUnreachable("no queue worker can be reached", cause=cause) from None
        except (httpx.HTTPError, TimeoutError) as error:
            cause = f"{url}: {str(error) or type(error).__name__}"
            raise lost("a queue worker has not answered in time", cause=cause) from None
        return _content(answer, lost)

    def _shown(self) -> dict[str, str]:
        try:
            key = self._key_file.read()[0] if self._key_file else ""
        except InvalidInput as error:
            raise QueuesUnavailable("the key for queue workers cannot be read", cause=error.detail) from None
        return {"Authorization": f"Bearer {key}"} if key else {}


def _path(queue: str) -> str:
    return f"/queues/{quote(queue, safe='')}"


def _content(answer: httpx.Response, lost: type[QueuesUnavailable]) -> bytes:
    """The body of a success. Raises UnknownQueue, QueueConflict, QueuesUnavailable or `lost` for others."""
    if answer.is_success:
        return answer.content
    try:
        detail = str(msgspec.json.decode(answer.content, type=dict[str, Any]).get("detail") or "")
    except msgspec.DecodeError:
        detail = ""
    match answer.status_code:
        case 404:
            raise UnknownQueue(detail or "there is no such queue")
        case 409 | 422:
            raise QueueConflict(detail)
        case 401 | 403:
            refusal = f"the queue workers refuse control's key (BATON_QUEUE_KEY_FILE): {detail}"
            raise QueuesUnavailable(refusal.rstrip(": "))
        case status:
            raise lost(detail or f"a queue worker answers {status}")


def _decoded(content: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError as error:
        raise QueuesUnavailable("what answers is no queue worker of this version", cause=str(error)) from None
