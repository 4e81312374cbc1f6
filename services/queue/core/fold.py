"""The rules of a queue: what each command does. Nothing else changes a queue, so all workers agree on it.

    item in the topic ──lease──► open ──ack──► done            its id stays known for `repeat_ms`
                        ▲         │ └──dead──► done            a copy is in the queue of dead letters
                        │         │ └─enter──► done            if another item has its id: a repeat
                        └─────────┘ its time is over, or it was released

Time is `now_ms`, the highest append time of the log's records; no clock of a worker counts. A receipt is good
until its item is leased again, also after its time. A record of another incarnation does nothing: its writer
means a queue of the same name that was deleted. Used by replica.py, record by record.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import msgspec

from services.queue.core.commands import (
    CHANGEABLE,
    RULES,
    Ack,
    AnyCommand,
    CommandRecord,
    Configure,
    Dead,
    Enter,
    Lease,
    Receipt,
    Seek,
    SnapshotPart,
    Until,
)
from services.queue.core.known_ids import AckedId
from services.queue.core.open_items import OpenItem, Place
from services.queue.core.queue_state import MAX_OPEN, QueueState
from shared.errors import InvalidInput

MAX_BURIED = 100
"""Items that one lease hands to its worker to be buried, besides those for its client."""
BURY_MS = 30_000
"""So long the worker has for that; then the next lease hands them to another."""


class UnknownRules(InvalidInput):
    """The queue has rules that this version of Baton does not know."""


class Leased(msgspec.Struct, frozen=True, gc=False):
    """An item that a lease got. `is_entered`: it has passed `enter` before, so its id is its own.

    `first_lease`: see OpenItem.
    """

    receipt: Receipt
    until_ms: int
    attempt: int
    is_entered: bool
    first_lease: int


class LeaseAnswer(msgspec.Struct, frozen=True):
    """What a lease got: items for the client, and items that have had all their attempts, to be buried."""

    leased: tuple[Leased, ...]
    to_bury: tuple[Leased, ...]


class EnterAnswer(msgspec.Struct, frozen=True):
    """Whether the item may be handed out: else it is a repeat and done, or the receipt is stale."""

    is_kept: bool


class ReceiptsAnswer(msgspec.Struct, frozen=True):
    """The indexes of the receipts that were stale: the command had no effect on those items."""

    stale: tuple[int, ...]


class Refused(msgspec.Struct, frozen=True):
    """The command had no effect: there is no queue yet, or another one, or it does not fit the queue."""


class Applied(msgspec.Struct, frozen=True):
    """The command had its effect."""


Answer: TypeAlias = LeaseAnswer | EnterAnswer | ReceiptsAnswer | Applied | Refused


def apply_record(state: QueueState, offset: int, append_ms: int, record: CommandRecord) -> list[Answer]:
    """Applies the commands of the record at the offset, and returns an answer to each.

    Raises UnknownRules; then the state is of no more use.
    """
    state.now_ms = max(state.now_ms, append_ms)
    state.ids.prune(state.now_ms)
    if record.incarnation != state.incarnation:
        return [Refused() for _ in record.commands]
    return [_apply(state, offset, command) for command in record.commands]


def _apply(state: QueueState, offset: int, command: AnyCommand) -> Answer:
    if isinstance(command, SnapshotPart):
        return Applied()
    state.counts.commands += 1
    if isinstance(command, Configure):
        return _configure(state, command)
    if state.settings is None:
        return Refused()
    match command:
        case Lease():
            return _lease(state, offset, command)
        case Enter():
            return _enter(state, command)
        case Ack() | Dead():
            return _finish(state, offset, command)
        case Until():
            return _put_off(state, command)
        case Seek():
            return _seek(state, command)


def check_rules(rules: int) -> None:
    """Raises UnknownRules."""
    if rules > RULES:
        raise UnknownRules(f"the queue has the rules {rules}; this version knows {RULES}")


def _configure(state: QueueState, command: Configure) -> Answer:
    new = command.settings
    if state.settings is None:
        check_rules(new.rules)
        state.frontier = [0] * new.partitions
    elif new.fixed != state.settings.fixed:
        return Refused()
    else:
        fields = CHANGEABLE if command.fields is None else command.fields
        changed = {field: getattr(new, field) for field in fields}
        new = msgspec.structs.replace(state.settings, **changed)
    state.settings = new
    return Applied()


def _lease(state: QueueState, offset: int, command: Lease) -> Answer:
    if len(command.ends) != len(state.frontier):
        return Refused()
    for partition, start in enumerate(command.starts[: len(state.frontier)]):
        state.frontier[partition] = max(state.frontier[partition], start)
    leased, to_bury = _lease_again(state, offset, command)
    until_ms = state.now_ms + command.ms
    room = min(command.count - len(leased), MAX_OPEN - len(state.open))
    for partition, at in _never_leased(state.frontier, command.ends, room):
        item = OpenItem(partition, at, offset, until_ms, first_lease=offset)
        state.open.add(item)
        leased.append(_leased(item))
    state.counts.leased += len(leased)
    return LeaseAnswer(tuple(leased), tuple(to_bury))


def _lease_again(state: QueueState, offset: int, command: Lease) -> tuple[list[Leased], list[Leased]]:
    """Leases what has come back, the lowest offsets first; and what of it has had all its attempts."""
    assert state.settings is not None
    leased: list[Leased] = []
    to_bury: list[Leased] = []
    most = state.settings.max_attempts
    while len(leased) < command.count and len(to_bury) < MAX_BURIED:
        item = state.open.next_due(state.now_ms)
        if item is None:
            break
        state.counts.expired += not item.is_released
        is_over = 0 < most <= item.attempts
        item.lease, item.is_released = offset, False
        item.attempts += not is_over
        state.open.put_off(item, state.now_ms + (BURY_MS if is_over else command.ms))
        (to_bury if is_over else leased).append(_leased(item))
    return leased, to_bury


def _leased(item: OpenItem) -> Leased:
    receipt = Receipt(item.partition, item.offset, item.lease)
    is_entered = item.id != ""
    return Leased(receipt, item.until_ms, item.attempts, is_entered=is_entered, first_lease=item.first_lease)


def _never_leased(frontier: list[int], ends: Sequence[int], room: int) -> Iterable[Place]:
    """Moves the frontier over at most `room` offsets below `ends`, one by one where most wait."""
    most = [
        (first - end, partition) for partition, (first, end) in enumerate(zip(frontier, ends, strict=True))
    ]
    heapq.heapify(most)
    for _ in range(room):
        waiting, partition = most[0]
        if waiting >= 0:
            break
        yield partition, frontier[partition]
        frontier[partition] += 1
        heapq.heapreplace(most, (waiting + 1, partition))


def _enter(state: QueueState, command: Enter) -> Answer:
    item = _find(state, command.receipt)
    if item is None:
        return EnterAnswer(is_kept=False)
    if not item.id:
        if state.ids.is_repeat(command.id, state.now_ms):
            state.open.remove(item.place)
            state.counts.repeats += 1
            return EnterAnswer(is_kept=False)
        item.id = command.id
        state.ids.hold(item.id, item.place)
    return EnterAnswer(is_kept=True)


def _finish(state: QueueState, offset: int, command: Ack | Dead) -> Answer:
    """The items are done. Done again is done, no matter who did it."""
    assert state.settings is not None
    is_dead = isinstance(command, Dead)
    is_bare = isinstance(command, Dead) and command.is_bare
    stale: list[int] = []
    for index, receipt in enumerate(command.receipts):
        item = _find(state, receipt)
        if item is None:
            if not _is_done(state, receipt, offset):
                stale.append(index)
            continue
        state.open.remove(item.place)
        state.counts.dead += is_dead
        state.counts.bare += is_bare
        state.counts.acked += not is_dead
        if item.id and is_dead:
            state.ids.forget(item.id)
        elif item.id:
            until_ms = state.now_ms + state.settings.repeat_ms
            state.ids.leave(AckedId(item.id, *item.place, until_ms))
    return ReceiptsAnswer(tuple(stale))


def _put_off(state: QueueState, command: Until) -> Answer:
    stale: list[int] = []
    for index, receipt in enumerate(command.receipts):
        item = _find(state, receipt)
        if item is None:
            stale.append(index)
            continue
        state.counts.released += command.is_release
        item.attempts -= command.is_unseen and not item.is_released
        item.is_released = command.is_release
        until_ms = state.now_ms + command.ms
        state.open.put_off(item, max(item.until_ms, until_ms) if command.is_at_least else until_ms)
    return ReceiptsAnswer(tuple(stale))


def _seek(state: QueueState, command: Seek) -> Answer:
    if len(command.to) != len(state.frontier):
        return Refused()
    frontier = [command.goes_to(partition, at) for partition, at in enumerate(state.frontier)]
    state.frontier = frontier

    def is_forgotten(place: Place) -> bool:
        return place[1] >= frontier[place[0]]

    gone = {item.place for item in state.open if command.drop or is_forgotten(item.place)}
    for place in gone:
        state.open.remove(place)
    state.ids.forget_items(lambda place: place in gone or is_forgotten(place))
    return Applied()


def _find(state: QueueState, receipt: Receipt) -> OpenItem | None:
    """The open item of a receipt that is good; None if the item is done, or was leased again since."""
    item = state.open.get((receipt.partition, receipt.offset))
    return item if item is not None and item.lease == receipt.lease else None


def _is_done(state: QueueState, receipt: Receipt, offset: int) -> bool:
    """Whether the item was leased before the record at the offset, and is done."""
    if receipt.partition >= len(state.frontier) or receipt.lease >= offset:
        return False
    place = (receipt.partition, receipt.offset)
    return state.open.get(place) is None and receipt.offset < state.frontier[receipt.partition]
