"""Answers callers that ask at the same time by one request (as Go's singleflight does).

While a request is under way, further callers gather for the next one; a lone caller waits for no other. The
caller whose turn it is makes the request, within its own time-out: there is no task behind it. Used for what
all streams of a member read from Kafka when they open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from shared.errors import Unavailable

Key = TypeVar("Key")
Answer = TypeVar("Answer")


@dataclass(slots=True, eq=False)
class _Asked(Generic[Key, Answer]):
    key: Key
    state: Literal["waits", "answered", "alone"] = "waits"
    answer: Answer | None = None


class CoalescedRead(Generic[Key, Answer]):
    """`request`: returns one answer for all the keys that it is given; may raise Unavailable."""

    def __init__(self, request: Callable[[Sequence[Key]], Awaitable[Answer]]) -> None:
        self._request = request
        self._waiting: list[_Asked[Key, Answer]] = []
        self._lock = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<CoalescedRead, {len(self._waiting)} waiting>"

    async def ask(self, key: Key) -> Answer:
        """The answer to a request that was made after this call, with `key` among its keys.

        When a request for several keys fails, each caller asks alone, so that one key cannot fail the others.
        Raises Unavailable.
        """
        asked: _Asked[Key, Answer] = _Asked(key)
        self._waiting.append(asked)
        try:
            async with self._lock:
                if asked.state == "waits":
                    await self._ask_for_all()
        finally:
            if asked in self._waiting:  # cancelled; the next in turn asks for the others
                self._waiting.remove(asked)
        if asked.state == "alone":
            return await self._request([key])
        assert asked.answer is not None
        return asked.answer

    async def _ask_for_all(self) -> None:
        together = list(self._waiting)
        try:
            answer = await self._request([asked.key for asked in together])
        except Unavailable:
            if len(together) == 1:
                raise
            for asked in together:
                asked.state = "alone"
        else:
            for asked in together:
                asked.state, asked.answer = "answered", answer
        self._waiting = [asked for asked in self._waiting if asked.state == "waits"]
