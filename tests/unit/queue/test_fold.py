"""Single rules of the fold that the simulation reaches seldom or not at all."""

from __future__ import annotations

import time

import pytest

from services.queue.core.commands import (
    Ack,
    AnyCommand,
    CommandRecord,
    Configure,
    Enter,
    Lease,
    QueueSettings,
    Receipt,
    Seek,
    Until,
    decode_record,
    encode_record,
)
from services.queue.core.fold import Answer, LeaseAnswer, UnknownRules, apply_record
from services.queue.core.known_ids import MAX_ACKED, AckedId, KnownIds
from services.queue.core.open_items import OpenItem, OpenItems
from services.queue.core.queue_state import MAX_OPEN, QueueState
from services.queue.core.replica import LogRecord, Replica
from services.queue.core.snapshot import decode_state, encode_state
from shared.errors import InvalidInput


class Log:
    """A state and the records that made it; one a second."""

    def __init__(self, settings: QueueSettings | None = None) -> None:
        self.state, self.offset = QueueState(), 0
        self.add(Configure(settings or QueueSettings()))

    def add(self, *commands: AnyCommand) -> list[Answer]:
        """The answers to one more record."""
        self.offset += 1
        return apply_record(self.state, self.offset, 1000 * self.offset, CommandRecord(b"w", 1, commands))

    def lease(self, count: int = 1, ms: int = 30_000, end: int = 1_000_000) -> list[Receipt]:
        """What a lease gets."""
        (answer,) = self.add(Lease(count, ms, (end,)))
        assert isinstance(answer, LeaseAnswer)
        return [one.receipt for one in answer.leased]


def test_beyond_the_most_open_items_only_what_comes_back_is_leased() -> None:
    """So memory is bounded, however many clients take and never ack."""
    log = Log()
    for _ in range(MAX_OPEN // 100):
        log.lease(100, 3_600_000)

    full = log.lease(100)
    log.state.now_ms += 3_600_000
    back = log.lease(100)

    assert len(log.state.open) == MAX_OPEN
    assert full == []
    assert [one.offset for one in back] == list(range(100))


def test_extended_and_done_items_leave_little_behind() -> None:
    """What finds the next end is bounded by the open items, not by the commands."""
    items = OpenItems()
    for n in range(100_000):
        items.add(OpenItem(0, n, lease=1, until_ms=10**12))
        if n >= 10:
            items.remove((0, n - 10))

    assert len(items._ends) < 2_000


def test_the_newest_acked_ids_are_known() -> None:
    """At most so many, whatever `repeat_ms` says."""
    ids = KnownIds()
    for n in range(MAX_ACKED + 10):
        ids.leave(AckedId(str(n), 0, n, 10**12))

    assert [ids.is_repeat(str(n), 0) for n in (9, 10, MAX_ACKED + 9)] == [False, True, True]


def test_an_expired_id_in_a_snapshot_does_not_shadow_its_new_holder() -> None:
    """After `repeat_ms` was lowered, an expired id may lie behind one that is still known."""
    log = Log(QueueSettings(repeat_ms=600_000))
    first, second, third = log.lease(3)
    log.add(Enter(first, "long"), Enter(second, "short"))
    log.add(Ack((first,)))
    log.add(Configure(QueueSettings(repeat_ms=0)))
    log.add(Ack((second,)))
    log.add(Enter(third, "short"))

    again = decode_state(encode_state(log.state))

    assert again.ids.is_repeat("short", again.now_ms)
    assert encode_state(again) == encode_state(log.state)


def test_unknown_rules_are_refused() -> None:
    """In the log, and in a snapshot."""
    with pytest.raises(UnknownRules):
        Log(QueueSettings(rules=3))
    with pytest.raises(UnknownRules):
        decode_state(b"\x97\x03" + encode_state(QueueState())[2:])


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"nonsense",
        encode_record(b"w", 1, [Lease(0, 1, (5,))]),
        encode_record(b"w", 1, [Lease(1, 0, (5,))]),
        encode_record(b"w", 1, [Lease(1, 1, (-5,))]),
        encode_record(b"w", 1, [Seek((-1,))]),
        encode_record(b"w", 1, [Ack((Receipt(-1, 0, 0),))]),
    ],
)
def test_a_record_that_is_none_has_no_effect_anywhere(value: bytes) -> None:
    """Whoever wrote it: all workers skip it, and the next record counts."""
    replica = Replica(0)
    replica.feed(LogRecord(0, 1, encode_record(b"w", 1, [Configure(QueueSettings())])))
    before = replica.state
    assert before is not None
    counted = before.counts.commands

    folded = replica.feed(LogRecord(1, 2, value))

    assert folded is not None
    assert (folded.answers, before.counts.commands, before.now_ms) == ([], counted, 2)
    with pytest.raises(InvalidInput):
        decode_record(value)


def test_a_snapshot_lets_the_log_go_only_through_the_one_before() -> None:
    """So a worker that lags by less than their distance goes on; a new one still finds its beginning."""
    records: list[LogRecord] = []
    replica = Replica(0, snapshot_every=10)
    belows, dues = list[int](), list[int]()

    def add(*commands: AnyCommand) -> None:
        records.append(LogRecord(len(records), len(records), encode_record(b"w", 1, commands)))
        folded = replica.feed(records[-1])
        assert folded is not None
        if folded.is_snapshot_due:
            snapshot = replica.snapshot()
            dues.append(records[-1].offset)
            belows.append(snapshot.below)
            for part in snapshot.parts:
                add(part)

    add(Configure(QueueSettings()))
    for _ in range(35):
        add(Lease(1, 1_000, (1_000,)))
    late = Replica(belows[-1])
    for record in records[belows[-1] :]:
        late.feed(record)

    assert belows == [0, *dues[:-1]]
    assert late.state is not None
    assert replica.state is not None
    assert encode_state(late.state) == encode_state(replica.state)


def test_commands_with_other_partitions_are_refused() -> None:
    """A worker that believes in another queue of the name must not move this one."""
    log = Log(QueueSettings(partitions=2))
    before = encode_state(log.state)

    log.add(Lease(1, 1, (5,)), Seek((5,)), Configure(QueueSettings(partitions=3)))
    log.state.counts.commands -= 3
    log.state.now_ms -= 1000

    assert encode_state(log.state) == before


def test_offsets_that_retention_took_are_not_leased() -> None:
    """The frontier begins where the partition does."""
    log = Log()

    (answer,) = log.add(Lease(1, 1000, (50,), (20,)))

    assert isinstance(answer, LeaseAnswer)
    assert [one.receipt.offset for one in answer.leased] == [20]
    assert log.state.frontier == [21]


def test_a_lease_that_no_client_has_seen_is_no_attempt() -> None:
    """It counts once, however often it is given back."""
    log = Log(QueueSettings(max_attempts=1))
    (receipt,) = log.lease()
    log.add(*(Until((receipt,), 0, is_release=True, is_unseen=True) for _ in range(2)))

    (again,) = log.lease()

    item = log.state.open.get((0, 0))
    assert item is not None
    assert (again.offset, item.attempts) == (0, 1)


def test_an_ack_forgets_the_oldest_id_without_a_search() -> None:
    """Once as many are known as may be, each new one drops an old one: 50,000 cost a tenth of a second."""
    ids = KnownIds()
    began_s = time.process_time()
    for n in range(MAX_ACKED + 50_000):
        if n == MAX_ACKED:
            began_s = time.process_time()
        ids.prune(n)
        ids.leave(AckedId(str(n), 0, n, 1_000_000))

    assert time.process_time() - began_s < 1.5
    assert len(ids) == MAX_ACKED
