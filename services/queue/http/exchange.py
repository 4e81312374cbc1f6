"""One request about items: `POST /queues/{queue}/lease` and the like, without the framework.

Guard and keys are asked before the body is read, the body counts as it arrives, and a task runs the handler.
Made by `face.py`, run by shared/server/connection.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec
from fastapi import Response
from starlette.datastructures import Headers

from services.queue.core.items import MAX_ITEM_BYTES
from services.queue.http.keys import QueueKeys
from services.queue.http.refusals import refusal
from services.queue.worker.answers import AnswerShare
from shared.errors import BatonError
from shared.model.form import Form, wrapping_for
from shared.server.counted import CountedExchange
from shared.server.exchange import Head, Line
from shared.server.face import Leaving
from shared.service.guard import Guard
from shared.service.http import problem
from shared.service.inflight import Inflight, InflightShare

MAX_REQUEST_BYTES = 2 * MAX_ITEM_BYTES
"""Of a request with items, encoded and decoded: a larger one holds up everybody else while it is parsed."""
MAX_SMALL_BYTES = 128 * 1024
"""Of a request without items: a thousand receipts have up to 60 KB."""
PIECE_BYTES = 64 * 1024
"""Of a large answer: so much waits for the client, besides what the system keeps for it."""
logger = logging.getLogger(__name__)


class CountedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer with items, in JSON; its bytes count until they are sent."""

    content: bytes
    share: AnswerShare


Handler = Callable[[str, bytes, Form], Awaitable[msgspec.Struct | CountedAnswer | Response]]
"""Answers a request to the queue of that name with that body. Raises BatonError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """What all these requests share. `handlers` are by the last part of the path."""

    guard: Guard
    keys: QueueKeys
    inflight: Inflight
    handlers: dict[str, Handler]


class ItemExchange(CountedExchange):
    """A request to a handler. It occupies its share until its body is read, or its items are stored."""

    _task: asyncio.Task[None] | None = None
    _has_begun = False

    def __init__(self, line: Line, head: Head, desk: Desk, queue: str, name: str) -> None:
        super().__init__(line, head)
        self._desk, self._queue, self._name = desk, queue, name

    @property
    def has_begun(self) -> bool:
        return self._has_begun

    @property
    def _has_items(self) -> bool:
        return self._name == "items"

    def start(self) -> None:
        desk, head = self._desk, self.head
        most = MAX_REQUEST_BYTES if self._has_items else MAX_SMALL_BYTES
        self._share = share = InflightShare(desk.inflight, most)
        try:
            headers = Headers(raw=head.headers)
            if refused := desk.guard.refusal(head.method, head.path, headers):
                self._respond(refused)
                return
            desk.keys.check(head.method, head.path, headers)
            if self._has_items:
                types, encodings = head.values(b"content-type"), head.values(b"content-encoding")
                self._wrapping = wrapping_for(types, encodings)
            share.check_announced(head.length)
        except BatonError as error:
            self._refuse(error)
            return
        if head.expects_continue:
            self.ask_for_body()
        if self.is_whole or self.body:
            self.arrived()

    def arrived(self) -> None:
        if self._share is None or self._task is not None:
            return
        try:
            self._count_body(self._share)
            if self.is_whole:
                self._begin(self._whole_body(self._share))
        except BatonError as error:
            self._refuse(error)

    def lose(self) -> None:
        super().lose()
        if self._task is None:
            self._release()
        elif self._name == "lease":  # its items go back; the others have their effect
            self._task.cancel()

    def cut(self) -> None:
        if self._task is not None:
            self._task.cancel()
        else:
            self._refuse(Leaving())

    def _begin(self, body: bytes) -> None:
        if not self._has_items:
            self._release()  # a lease may wait for long, and its body is read
        task = self._task = self.line.loop.create_task(self._run(body))
        self.line.tasks.add(task)
        task.add_done_callback(self.line.tasks.discard)

    async def _run(self, body: bytes) -> None:
        handler = self._desk.handlers[self._name]
        try:
            answer = await handler(self._queue, body, self._wrapping.form)
        except BatonError as error:
            answer = refusal(error)
        except asyncio.CancelledError:
            answer = refusal(Leaving())
        except Exception:
            logger.exception("request failed")
            answer = problem(500, "internal-server-error", "an internal error; it has been logged")
        if isinstance(answer, CountedAnswer):
            await self._send(answer)
        elif isinstance(answer, Response):
            self._respond(answer)
        else:
            self._finish(200, _JSON, msgspec.json.encode(answer))

    async def _send(self, answer: CountedAnswer) -> None:
        """A large one goes out in pieces: each waits until the client has taken those before it."""
        content, outlet = answer.content, self.line.outlet
        try:
            if len(content) <= PIECE_BYTES or self.is_lost:
                self._finish(200, _JSON, content)
                return
            self._has_begun = True
            self.line.begin(self, 200, (*_JSON, (b"content-length", b"%d" % len(content))))
            for at in range(0, len(content), PIECE_BYTES):
                await outlet.drained()
                if self.is_lost:
                    return
                outlet.write(content[at : at + PIECE_BYTES])
            self.line.answered(self)
        except asyncio.CancelledError:
            outlet.transport.abort()  # the client must see that the answer is not complete
        finally:
            answer.share.release()

    def _refuse(self, error: BatonError) -> None:
        self._respond(refusal(error))

    def _respond(self, answer: Response) -> None:
        headers = tuple(pair for pair in answer.raw_headers if pair[0] != b"content-length")
        self._finish(answer.status_code, headers, bytes(answer.body))

    def _finish(self, status: int, headers: tuple[tuple[bytes, bytes], ...], body: bytes) -> None:
        self._release()
        if not self.is_lost and not self.is_answered:
            self.line.respond(self, status, (*headers, (b"content-length", b"%d" % len(body))), body)


_JSON = ((b"content-type", b"application/json"),)
