"""Reads the bodies of requests within bounds: each in size and time, and all together in memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from starlette.requests import Request

from services.queue.core.items import MAX_ITEM_BYTES
from shared.model.form import Coding, Wrapping, wrapping_for
from shared.model.items import RequestTooLarge, RequestUnreadable
from shared.service.inflight import Inflight, InflightShare, Overloaded, decode_body

MAX_REQUEST_BYTES = 2 * MAX_ITEM_BYTES
"""Of a request with items, encoded and decoded: a larger one holds up everybody else while it is parsed."""
MAX_SMALL_BYTES = 128 * 1024
"""Of a request without items: a thousand receipts have up to 60 KB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bodies:
    """What the bodies of requests with items may occupy, and how long they may take."""

    inflight: Inflight
    read_timeout_s: float

    @contextlib.asynccontextmanager
    async def posted(self, request: Request) -> AsyncIterator[tuple[bytes, Wrapping]]:
        """The decoded body and its form, which count as in flight during the block.

        Raises UnsupportedType, RequestUnreadable, RequestTooLarge or Overloaded.
        """
        headers = request.headers
        wrapping = wrapping_for(
            tuple(value.encode() for value in headers.getlist("content-type")),
            tuple(value.encode() for value in headers.getlist("content-encoding")),
        )
        share = InflightShare(self.inflight, MAX_REQUEST_BYTES)
        try:
            length = headers.get("content-length", "")
            share.check_announced(int(length) if length.isdecimal() else 0)
            pieces = await self._upload(request, share)
            if wrapping.coding is not Coding.IDENTITY:
                pieces = decode_body(pieces, wrapping.coding, share)
            yield b"".join(pieces), wrapping
        finally:
            share.release()

    async def _upload(self, request: Request, share: InflightShare) -> list[bytes]:
        task, is_dropped = asyncio.current_task(), False

        def drop() -> None:
            nonlocal is_dropped
            is_dropped = True
            if task is not None:
                task.cancel()

        pieces: list[bytes] = []
        share.begin_upload(drop)
        try:
            async with asyncio.timeout(self.read_timeout_s):
                async for chunk in request.stream():
                    share.add(len(chunk))
                    pieces.append(chunk)
        except TimeoutError:
            raise RequestUnreadable(f"the body did not arrive within {self.read_timeout_s:g} s") from None
        except asyncio.CancelledError:
            if is_dropped and task is not None:
                task.uncancel()
                raise Overloaded from None
            raise
        finally:
            share.end_upload()
        return pieces


async def small_body(request: Request) -> bytes:
    """The body of a request without items. Raises RequestTooLarge."""
    pieces, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > MAX_SMALL_BYTES:
            raise RequestTooLarge(f"a body may have at most {MAX_SMALL_BYTES} bytes here")
        pieces.append(chunk)
    return b"".join(pieces)
