"""The last good value of a source that control reads again and again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from shared.errors import BatonError, Unavailable

T = TypeVar("T")
logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Reading(Generic[T]):
    """The last good value of one source, and when it was read: `read_at` is steady, `read_ms` is UTC."""

    name: str
    value: T
    read: Callable[[], Awaitable[T]]
    clock: Callable[[], float]
    now_ms: Callable[[], int]
    read_at: float | None = None
    read_ms: int | None = None
    error: str = "it has not been read yet"
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def step(self) -> None:
        """Reads once. A failure keeps the last value and is logged once."""
        async with self.lock:
            await self._step()

    async def _step(self) -> None:
        try:
            self.value = await self.read()
        except BatonError as error:
            # once per reason: a source that stays away fails twice a second
            if self.error != error.detail:
                level = logging.WARNING if isinstance(error, Unavailable) else logging.ERROR
                logger.log(level, "source unread", extra={"source": self.name, "why": error.detail})
            self.error = error.detail
        else:
            self.read_at, self.read_ms = self.clock(), self.now_ms()
            self.error = ""

    def is_late(self, patience_s: float) -> bool:
        """Whether there is no reading that is younger than that."""
        return self.read_at is None or self.clock() - self.read_at > patience_s

    def complaint(self) -> str:
        """What is wrong, in one sentence."""
        return f"{self.name} cannot be read: {self.error or 'no answer yet'}"
