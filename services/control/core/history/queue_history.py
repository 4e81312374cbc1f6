"""An hour of the queues' numbers: one sample of all queues every 15 s, kept beside those of the groups.

Pure. The topic `baton.history` holds both kinds of samples; each parser refuses the other's.
`live/queues/history.py` takes and restores them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from services.control.core.history.hour import STEP_MS, Column, Hour, Number, decode_sample, slot_of
from services.control.core.queues import QueueRow
from shared.errors import InvalidInput

MAX_SAMPLE_BYTES: Final = 128 * 1024
"""Above any sample of MAX_QUEUES."""
MAX_QUEUES: Final = 500
"""Of more, the first by name have an hour: 500 take 20 MB of memory."""


class QueueNumbers(msgspec.Struct, frozen=True, array_like=True):
    """A queue's numbers in one slot; None is unknown."""

    ready: Number = None
    leased: Number = None
    waiting: Number = None
    dead: Number = None
    oldest_age_s: Number = None


class QueuesSample(msgspec.Struct, frozen=True, kw_only=True):
    """A record of the topic: all queues in the slot that begins at `at` (ms UTC), as `writer` saw them."""

    at: int
    writer: str
    queues: dict[str, QueueNumbers]


class QueueHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The last hour of a queue, in columns with one number per step."""

    queue: str
    from_: Annotated[int, Meta(description="begin of the first step, ms UTC")] = msgspec.field(name="from")
    step_ms: int
    depth: Annotated[Column, Meta(description="items that are not done: ready, leased and waiting")]
    ready: Column
    leased: Column
    waiting: Column
    dead: Column
    oldest_age_s: Annotated[Column, Meta(description="0: there was no item")]


def queues_sample(rows: Sequence[QueueRow], *, at: int, writer: str) -> QueuesSample:
    """The sample of these queues; an age is 0 where nothing is left, so that a chart has no gap there."""
    named = sorted(rows, key=lambda row: row.queue)[:MAX_QUEUES]
    return QueuesSample(
        at=slot_of(at),
        writer=writer,
        queues={row.queue: _numbers(row) for row in named if row.depth is not None},
    )


def _numbers(row: QueueRow) -> QueueNumbers:
    age_s = 0.0 if row.oldest_age_s is None else round(row.oldest_age_s, 1)
    return QueueNumbers(row.ready, row.leased, row.waiting, row.dead, age_s)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(QueuesSample).decode


def encode_queues_sample(sample: QueuesSample) -> bytes:
    """The sample as a record's value."""
    return _encode(sample)


def parse_queues_sample(raw: bytes) -> QueuesSample:
    """The sample in a record's value. Raises InvalidInput for anything else, such as a group's sample."""
    sample = decode_sample(raw, _decode, MAX_SAMPLE_BYTES)
    if sample.at % STEP_MS or len(sample.queues) > MAX_QUEUES:
        raise InvalidInput("not a sample of queues: no slot, or too many queues")
    return sample


class QueueRing:
    """The numbers of all queues in the last hour."""

    def __init__(self) -> None:
        self._hour: Hour[QueueNumbers] = Hour()

    def __repr__(self) -> str:
        return f"<QueueRing of {len(self._hour)} queues>"

    def add(self, sample: QueuesSample, now_ms: int) -> None:
        """Keeps what the sample knows of its slot; of two controls' samples that of the greater name."""
        for queue, numbers in sample.queues.items():
            self._hour.add(queue, sample.at, (sample.writer,), numbers, now_ms)

    def of(self, queue: str, now_ms: int) -> QueueHistory:
        """The hour up to now; nulls only, if nothing is known of the queue."""
        first, kept = self._hour.of(queue, now_ms)

        def column(value: Callable[[QueueNumbers], Number]) -> list[Number]:
            return [None if one is None else value(one) for one in kept]

        return QueueHistory(
            queue=queue,
            from_=first,
            step_ms=STEP_MS,
            depth=column(_depth),
            ready=column(lambda one: one.ready),
            leased=column(lambda one: one.leased),
            waiting=column(lambda one: one.waiting),
            dead=column(lambda one: one.dead),
            oldest_age_s=column(lambda one: one.oldest_age_s),
        )


def _depth(one: QueueNumbers) -> Number:
    parts = [part for part in (one.ready, one.leased, one.waiting) if part is not None]
    return sum(parts) if len(parts) == 3 else None
