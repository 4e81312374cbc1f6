"""Asks a worker of the queue service, over HTTP: one of control's files that import httpx.

Any worker answers for all queues, so the next one is asked when one cannot be reached. A worker that has got
a request may have carried it out: then no other is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, TypeVar
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
        return (await self._get("/queues", _Queues)).queues

    async def show(self, queue: str) -> QueueRow:
        """See `QueueSource`."""
        return await self._get(_path(queue), QueueRow)

    async def letters(self, queue: str, limit: int) -> Sequence[DeadLetter]:
        """See `QueueSource`."""
        return (await self._get(f"{_path(queue + DEAD)}/items?limit={limit}", _Peeked)).items

    async def act(self, queue: str, act: Act, *, dry_run: bool) -> int:
        """See `QueueSource`."""
        path, body = f"{_path(queue)}/{act}", {"dry_run": dry_run}
        answer = await self._answer(
            "POST", path, body, within_s=ANSWER_TIMEOUT_S if dry_run else ACT_TIMEOUT_S
        )
        return _decoded(answer, _Ready).ready

    async def _get(self, path: str, kind: type[T]) -> T:
        return _decoded(await self._answer("GET", path, None, within_s=ANSWER_TIMEOUT_S), kind)

    async def _answer(self, method: str, path: str, body: Any, *, within_s: float) -> bytes:
        """The body of a success, from the first worker that can be reached."""
        why = "none is named"
        for url in self._urls:
            try:
                async with asyncio.timeout(within_s):
                    answer = await self._http.request(
                        method, f"{url}{path}", json=body, headers=self._shown()
                    )
            except (httpx.ConnectError, httpx.InvalidURL) as error:
                why = f"{url}: {tls_fault(error) or str(error) or type(error).__name__}"
            except (httpx.HTTPError, TimeoutError) as error:
                cause = f"{url}: {str(error) or type(error).__name__}"
                raise _unanswered(method, "a queue worker has not answered in time", cause) from None
            else:
                return _content(method, answer)
        raise QueuesUnavailable("no queue worker can be reached", cause=why)

    def _shown(self) -> dict[str, str]:
        try:
            key = self._key_file.read()[0] if self._key_file else ""
        except InvalidInput as error:
            raise QueuesUnavailable("the key for queue workers cannot be read", cause=error.detail) from None
        return {"Authorization": f"Bearer {key}"} if key else {}


def _path(queue: str) -> str:
    return f"/queues/{quote(queue, safe='')}"


def _unanswered(method: str, why: str, cause: str = "") -> QueuesUnavailable:
    """A request that may have been carried out, if it was one that acts."""
    return (QueuesUnavailable if method == "GET" else QueueOutcomeUnknown)(why, cause=cause)


def _content(method: str, answer: httpx.Response) -> bytes:
    """The body of a success. Raises UnknownQueue, QueueConflict or QueuesUnavailable for a refusal."""
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
            raise _unanswered(method, detail or f"a queue worker answers {status}")


def _decoded(content: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError as error:
        raise QueuesUnavailable("what answers is no queue worker of this version", cause=str(error)) from None
