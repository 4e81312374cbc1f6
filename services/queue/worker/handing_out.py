"""What of a lease the client gets: items that exist, are no repeats, fit an answer, and are still its own.

The fold leases offsets; only here are the items read. What the client does not get is settled by commands
right away: an offset without an item is done, an item that does not fit is given back. Used by leasing.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from services.queue.core.commands import Ack, AnyCommand, Enter, Receipt, given_back
from services.queue.core.fold import Leased
from services.queue.core.items import ItemRecord
from services.queue.core.open_items import Place
from services.queue.core.queue_state import QueueState
from services.queue.core.receipts import show_receipt
from services.queue.ports import ItemLog
from services.queue.worker.answers import AnswerShare
from services.queue.worker.engine import Engine
from shared.service.inflight import Overloaded

ANSWER_BYTES: Final = 4 * 1024 * 1024
"""Of the items in one answer, except that it has at least one: a hundred could have a hundred megabytes."""
READ_AT_ONCE: Final = 10
"""Items that are read together, before it is known how large they are."""


class HandedOut(msgspec.Struct, frozen=True, kw_only=True):
    """An item in the hands of a client, which settles it by the receipt."""

    receipt: str
    leased: Leased
    record: ItemRecord


@dataclass(slots=True)
class _Read:
    found: list[HandedOut] = field(default_factory=list)
    gaps: list[Receipt] = field(default_factory=list)
    """Of offsets without an item."""
    left: list[Receipt] = field(default_factory=list)
    """Of items for which the answer has no room."""


def place_of(receipt: Receipt) -> Place:
    """Where the receipt's item is."""
    return receipt.partition, receipt.offset


async def hand_out(
    engine: Engine, items: ItemLog, leased: Sequence[Leased], share: AnswerShare | None = None
) -> list[HandedOut]:
    """What of these the client gets, in their order, as far as the answer's `share` of memory allows.

    Raises KafkaUnavailable; Overloaded if there is no room for a single one.
    """
    read = await _read(engine, items, leased, share)
    commands: list[AnyCommand] = [
        Enter(one.leased.receipt, one.record.id)
        for one in read.found
        if one.record.id and not one.leased.is_entered
    ]
    if read.gaps:
        commands.append(Ack(tuple(read.gaps)))
    if read.left:
        commands.append(given_back(read.left))
    if commands:
        await engine.submissions.submit(commands)
    if read.left and not read.found:
        raise Overloaded("too many answers are being sent")
    state, now_ms = engine.state, engine.now_ms
    over = [one.leased for one in read.found if not _is_held(state, now_ms, one.leased)]
    if not over:
        return read.found
    engine.give_back(over)  # no attempt, if nobody else has had them since
    return [one for one in read.found if one.leased not in over]


async def _read(engine: Engine, items: ItemLog, leased: Sequence[Leased], share: AnswerShare | None) -> _Read:
    read, size = _Read(), 0
    for first in range(0, len(leased), READ_AT_ONCE):
        some = leased[first : first + READ_AT_ONCE]
        if size >= ANSWER_BYTES:
            read.left += [one.receipt for one in some]
            continue
        records = await items.get([place_of(one.receipt) for one in some])
        for one in some:
            record = records.get(place_of(one.receipt))
            if record is None:
                read.gaps.append(one.receipt)
            elif (size and size + record.size > ANSWER_BYTES) or not (
                share is None or share.add(record.size)
            ):
                size = ANSWER_BYTES  # from here on all are left, so that they come back in order
                read.left.append(one.receipt)
            else:
                size += record.size
                receipt = show_receipt(one.receipt, engine.name, engine.incarnation)
                read.found.append(HandedOut(receipt=receipt, leased=one, record=record))
    return read


def _is_held(state: QueueState, now_ms: int, leased: Leased) -> bool:
    """Whether the item is still this lease's: it may be a repeat, or this worker stood still for too long."""
    item = state.open.get(place_of(leased.receipt))
    if item is None or item.lease != leased.receipt.lease:
        return False
    return now_ms < item.until_ms
