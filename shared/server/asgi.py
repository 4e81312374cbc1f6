"""Asks an ASGI app for the answer of a request: everything but fragments and items.

The ordinary way: a task for each request, as every server does it. The app reads the body when it wants it;
what it has not taken is bounded by `connection.py`, which then stops reading.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from fastapi import Response
from starlette.types import ASGIApp, Message, Scope

from shared.server.exchange import Exchange, Head, Line
from shared.service.http import problem

MAX_UNTAKEN_BYTES = 64 * 1024
"""Of a body that the app has not asked for; then nothing more is read."""
logger = logging.getLogger(__name__)


class AppExchange(Exchange):
    """A request that `app` answers. `cut_answer` makes the answer if a stop ends the request."""

    def __init__(
        self,
        line: Line,
        head: Head,
        app: ASGIApp,
        cut_answer: Callable[[], Response],
    ) -> None:
        super().__init__(line, head)
        self._app = app
        self._cut_answer = cut_answer
        self._changed = asyncio.Event()
        self._has_begun = self._is_chunked = self._is_taken = False
        self._task: asyncio.Task[None] | None = None

    @property
    def has_begun(self) -> bool:
        return self._has_begun

    @property
    def is_behind(self) -> bool:
        return self.size > MAX_UNTAKEN_BYTES

    def start(self) -> None:
        task = self._task = self.line.loop.create_task(self._run())
        self.line.tasks.add(task)
        task.add_done_callback(self.line.tasks.discard)

    def arrived(self) -> None:
        self._changed.set()

    def lose(self) -> None:
        super().lose()
        self._changed.set()

    def cut(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            await self._app(self._scope(), self._receive, self._send)
        except asyncio.CancelledError:
            self._answer_instead(self._cut_answer)
        except Exception:
            logger.exception("request failed")
            self._answer_instead(_failed)
        else:
            if not self.is_answered and not self.is_lost:
                logger.error("request not answered", extra={"path": self.head.path})
                self._answer_instead(_failed)
        finally:
            self._task = None

    def _scope(self) -> Scope:
        head, about = self.head, self.line.outlet.transport.get_extra_info
        peer = about("peername")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": head.version,
            "server": about("sockname"),
            "client": peer and peer[:2],  # of IPv6 it has more than address and port
            "scheme": "http" if about("ssl_object") is None else "https",
            "method": head.method,
            "root_path": "",
            "path": head.path,
            "raw_path": head.target.partition(b"?")[0],
            "query_string": head.query,
            "headers": head.headers,
        }

    def _answer_instead(self, make: Callable[[], Response]) -> None:
        if self.is_answered or self.is_lost:
            return
        if self._has_begun:  # the client must see that the answer is not complete
            self.line.outlet.transport.abort()
            return
        answer = make()
        self.line.respond(self, answer.status_code, tuple(answer.raw_headers), bytes(answer.body))

    async def _receive(self) -> Message:
        self.ask_for_body()
        while not (self.is_lost or self.is_answered) and (self._is_taken or not (self.body or self.is_whole)):
            self._changed.clear()
            await self._changed.wait()
        if self.is_lost or self.is_answered:
            return {"type": "http.disconnect"}
        body = b"".join(self.body)
        self.drop_body()
        self._is_taken = self.is_whole
        self.line.resume()
        return {"type": "http.request", "body": body, "more_body": not self.is_whole}

    async def _send(self, message: Message) -> None:
        await self.line.outlet.drained()
        if self.is_lost:
            return
        if message["type"] == "http.response.start":
            self._begin(message["status"], list(message.get("headers", [])))
            return
        # not copied: a bundle has up to 138 MB
        body, is_end = message.get("body", b""), not message.get("more_body", False)
        if self.head.method == "HEAD":
            body = b""
        elif self._is_chunked:
            chunk = b"%x\r\n%s\r\n" % (len(body), body) if body else b""
            body = chunk + (b"0\r\n\r\n" if is_end else b"")
        if body:
            self.line.outlet.write(body)
        if is_end:
            self.line.answered(self)
            self._changed.set()

    def _begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        has_length = any(name.lower() == b"content-length" for name, _ in headers)
        if not has_length and self.head.method != "HEAD" and status not in (204, 304):
            # a client of HTTP/1.0 knows no chunks: there the end of the connection ends the answer
            self._is_chunked = self.head.version == "1.1"
        if self._is_chunked:
            headers.append((b"transfer-encoding", b"chunked"))
        self._has_begun = True
        self.line.begin(self, status, tuple(headers))


def _failed() -> Response:
    return problem(500, "internal-server-error", "an internal error; it has been logged")
