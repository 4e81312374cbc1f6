"""Answers callers that ask at the same time by one request (as Go's singleflight does).

While a request is under way, further callers gather for the next one; a lone caller waits for no other. The
caller whose turn it is makes the request, within its own time-out: there is no task behind it. Used for what
all streams of a member read from Kafka when they open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
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
    """`together` returns the answers that are to be had at once, `patient` waits for that of its only key.

    Both may raise Unavailable.
    """

    def __init__(
        self,
        together: Callable[[Sequence[Key]], Awaitable[Mapping[Key, Answer]]],
        patient: Callable[[Sequence[Key]], Awaitable[Mapping[Key, Answer]]] | None = None,
    ) -> None:
        self._together = together
        self._patient = patient
        self._waiting: list[_Asked[Key, Answer]] = []
        self._lock = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<CoalescedRead, {len(self._waiting)} waiting>"

    async def ask(self, key: Key) -> Answer:
        """The answer to a request that was made after this call, with `key` among its keys.

        Who gets none from a request for several keys, or is left out by any, asks once more alone: so no key
        fails the others, or lets them wait. Raises Unavailable.
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
            return (await (self._patient or self._together)([key]))[key]
        assert asked.answer is not None
        return asked.answer

    async def _ask_for_all(self) -> None:
        together = list(self._waiting)
        try:
            answers = await self._together([asked.key for asked in together])
        except Unavailable:
            if len(together) == 1 and self._patient is None:  # it would ask the same again
                raise
            answers = {}
        for asked in together:
            asked.answer = answers.get(asked.key)
            asked.state = "answered" if asked.key in answers else "alone"
        self._waiting = [asked for asked in self._waiting if asked.state == "waits"]
