"""What control knows of queues: as a worker of the queue service reports them.

Pure. A worker's answer decodes into these rows. While no worker answers, names and settings stay and numbers
are unknown. Used by `live/queues/queues.py` and by what shows queues.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from shared.errors import Conflict, NotFound, Unavailable

Act = Literal["purge", "redrive"]
"""What an operator may do to a queue as a whole."""


class QueuesUnavailable(Unavailable):
    """No worker of the queue service answers."""


class QueuesUnreachable(QueuesUnavailable):
    """No worker of the queue service can be reached, so none has got the request."""


class QueueOutcomeUnknown(QueuesUnavailable):
    """A queue worker got the request and has not said what became of it: it may have been done."""


class UnknownQueue(NotFound):
    """There is no queue of that name."""


class QueueConflict(Conflict):
    """The queue is not such that this can be done to it."""


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a queue, in the units of the queue service's requests."""

    over: Annotated[str, Meta(description="the topic whose records are the items; empty: its own")] = ""
    partitions: int = 1
    lease_s: float = 0.0
    max_attempts: Annotated[int, Meta(description="0: no limit")] = 0
    repeat_ms: int = 0
    keep_s: float = 0.0


class QueueRow(msgspec.Struct, frozen=True, kw_only=True):
    """A queue with its items by what they wait for; null: not known now."""

    queue: str
    ready: Annotated[int | None, Meta(description="can be leased")] = None
    leased: Annotated[int | None, Meta(description="a client has them")] = None
    waiting: Annotated[int | None, Meta(description="given back, for later")] = None
    dead: Annotated[int | None, Meta(description="dead letters")] = None
    oldest_age_s: Annotated[
        float | None, Meta(description="age of the oldest item that is not done; null also without any")
    ] = None
    settings: QueueSettings = QueueSettings()

    @property
    def depth(self) -> int | None:
        """How many items are not done; None: not known."""
        if self.ready is None or self.leased is None or self.waiting is None:
            return None
        return self.ready + self.leased + self.waiting

    def without_numbers(self) -> QueueRow:
        """The queue while no worker answers: old numbers must not look like new ones."""
        return QueueRow(queue=self.queue, settings=self.settings)


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """An item that was rejected, or had all its attempts."""

    partition: int
    offset: int
    id: Annotated[
        str | None, Meta(description="queue, partition, offset and first lease of the item it was")
    ] = None
    enqueued_at: Annotated[int, Meta(description="when it was buried, ms UTC")] = 0
    headers: Annotated[
        dict[str, str], Meta(description="`attempts`, `why`, and as `item` the id that the item had")
    ] = {}
    size: Annotated[int, Meta(description="bytes of its data")] = 0
    text: Annotated[str, Meta(description="the begin of its data")] = ""


class QueueChange(msgspec.Struct, frozen=True, kw_only=True):
    """What was done to a queue; of a dry run, what would be done now.

    `items`: dropped by a purge, or put back by a redrive, as counted right before. `ready`: right after it.
    """

    queue: str
    act: Act
    items: int
    ready: int
