"""What a key remembers of its closed sessions: each id ages on its own, and costs the checkpoint little."""

from __future__ import annotations

import random
from collections.abc import Iterator

import msgspec
import pytest

from services.consumer.core.commits.checkpoint import Checkpoint, folding_records, new_stream
from services.consumer.core.commits.checkpoint_format import (
    CheckpointRecord,
    CoveredWire,
    covered_wire,
    decode_record,
    encode_record,
    put_covered,
)
from services.consumer.core.commits.stream import Stream
from services.consumer.core.commits.turn import StreamLimits
from services.consumer.core.sessions import remembered
from services.consumer.core.sessions.covered import CoveredKeys
from services.consumer.core.sessions.record import hash_id
from services.consumer.core.sessions.remembered import REMEMBERED_ID_BYTES, REMEMBERED_IDS, Ids, forget_old
from services.consumer.core.sessions.state import Covered, OpenSession, is_droppable
from services.consumer.core.slices import at_once
from shared.model.group import GroupSettings
from shared.model.head import Head
from tests import reference
from tests.effort import effort
from tests.logs import commit_of, difference
from tests.reference import Rec

REPEAT_MS = GroupSettings().repeat_ms
FRAGMENTS = 20_000
EVERY_MS = 120
"""`REMEMBERED_IDS` fragments in `repeat_ms`: any fewer, and a key would remember less."""
PER_COMMIT = 8
"""About a second's fragments."""


def short_sessions(fragments: int, every_ms: int = EVERY_MS) -> list[Rec]:
    """A log of one key whose every fragment ends its session."""
    values = ({"key": "k", "id": f"{n:020}", "end": True} for n in range(fragments))
    return [
        Rec(n, 1_000_000 + n * every_ms, b"k", msgspec.json.encode(value)) for n, value in enumerate(values)
    ]


def stream_of(checkpoint: Checkpoint) -> Stream:
    """A stream under the default settings."""
    return Stream(
        group="default",
        stream=0,
        epoch=1,
        settings=GroupSettings(),
        limits=StreamLimits(),
        checkpoint=checkpoint,
        now_s=0.0,
    )


def committed(stream: Stream, log: list[Rec], per_commit: int = PER_COMMIT) -> Iterator[bytes]:
    """Folds the log with a commit after every few records; yields the checkpoint records."""
    offset = stream.head.newest + 1
    for at in range(0, len(log), per_commit):
        stream.fold(log[at : at + per_commit], 0.0)
        commit = commit_of(stream)
        yield from commit.records
        stream.committed(commit, range(offset, offset + len(commit.records)), 0.0)
        offset += len(commit.records)


def test_short_sessions_cost_a_checkpoint_a_small_multiple_of_what_comes_in() -> None:
    """A commit writes the ids that are new, not all that the key remembers."""
    log = short_sessions(FRAGMENTS)

    written = sum(map(len, committed(stream_of(new_stream()), log)))

    assert written < 1.5 * sum(len(record.value) for record in log)


def test_a_key_with_short_sessions_remembers_the_ids_of_repeat_ms() -> None:
    """Sessions that follow keep no id of an earlier one, however short the silence between them."""
    stream = stream_of(new_stream())

    list(committed(stream, short_sessions(2 * REMEMBERED_IDS, every_ms=1_000), per_commit=500))

    assert stream.remembered_ids == REPEAT_MS // 1_000 + 1


def test_a_key_remembers_the_newest_ids_only() -> None:
    """However fast they come."""
    stream = stream_of(new_stream())

    list(committed(stream, short_sessions(2 * REMEMBERED_IDS, every_ms=1), per_commit=500))

    ids = stream.assembler.covered.entries["k"].ids
    assert list(ids) == [hash_id(f"{n:020}") for n in range(REMEMBERED_IDS, 2 * REMEMBERED_IDS)]
    assert stream.remembered_ids == REMEMBERED_IDS


def test_each_id_is_forgotten_repeat_ms_after_its_own_session() -> None:
    """The example of docs/protocol.md: fragments that all say `end`, as A and id, with repeat = 60."""
    values = [(0, "x"), (50, "y"), (61, "x"), (100, "y"), (121, "x")]
    log = [
        Rec(n, 1_000 + a, b"k", msgspec.json.encode({"key": "k", "id": name, "end": True}))
        for n, (a, name) in enumerate(values)
    ]
    stream = stream_of(new_stream())
    stream.assembler = type(stream.assembler)(GroupSettings(repeat_ms=60))

    stream.fold(log, 0.0)

    assert [closed.session.first_offset for closed in stream.pending] == [0, 1, 2]
    assert stream.counts.repeats == 2


def test_an_empty_id_of_an_earlier_producer_is_an_id_like_any_other() -> None:
    """Producers reject it now; a consumer that ignored it would change the sessions of existing logs."""
    stream = stream_of(new_stream())

    stream.fold([Rec(n, 1_000 + n, b"k", b'{"key":"k","id":""}') for n in range(2)], 0.0)

    assert (stream.counts.fragments, stream.counts.repeats) == (2, 1)


@pytest.mark.parametrize("most", [1, 2, 3])
def test_few_remembered_ids_change_nothing_else(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound on their number is part of the rule, so owners that crash and move keep it, too."""
    monkeypatch.setattr(remembered, "REMEMBERED_IDS", most)
    monkeypatch.setattr(reference, "REMEMBERED_IDS", most)

    assert not [text for seed in range(effort(500)) if (text := difference(seed))]


def test_one_id_too_many_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail."""
    monkeypatch.setattr(remembered, "REMEMBERED_IDS", 3)
    monkeypatch.setattr(reference, "REMEMBERED_IDS", 2)

    assert any(difference(seed) for seed in range(500))


def test_a_checkpoint_holds_the_ids_that_its_owner_holds() -> None:
    """Changes since the last whole set add up to what is remembered, and so does the count of a new owner."""
    stream = stream_of(new_stream())
    records = list(enumerate(committed(stream, short_sessions(12_000, every_ms=100), per_commit=7)))
    kept = records[stream.head.checkpoint_from :]

    loaded = stream_of(at_once(folding_records(stream.head, kept, REPEAT_MS)))

    assert len(kept) < len(records)
    assert loaded.assembler.covered.entries == stream.assembler.covered.entries
    assert loaded.remembered_ids == stream.remembered_ids == REMEMBERED_IDS


def test_what_an_owner_would_load_is_counted() -> None:
    """It stays near the bound at which a whole set begins, however long short sessions go on."""
    stream = stream_of(new_stream())

    sizes = [stream.checkpoint_bytes for _ in committed(stream, short_sessions(30_000))]

    assert max(sizes) < 2 * 256 * 1024 + REMEMBERED_IDS * REMEMBERED_ID_BYTES


def test_a_whole_entry_replaces_what_was_stored_before() -> None:
    """And a change only adds to it; an id that comes again is as young as its newest session."""
    stored: dict[str, Covered] = {}
    first = Covered(offset=3, ids={1: 100, 2: 100, 3: 107})
    put_covered(stored, covered_wire("k", first))
    assert stored == {"k": first}

    second = Covered(offset=9, ids={2: 100, 3: 107, 4: 120, 1: 130})
    put_covered(stored, covered_wire("k", second, 2))
    assert list(stored["k"].ids.items()) == [*second.ids.items()]

    put_covered(stored, covered_wire("k", Covered(offset=10, ids={5: 140}), 1))
    assert stored == {"k": Covered(offset=10, ids={5: 140})}


def test_a_remembered_id_takes_at_most_as_much_as_is_promised() -> None:
    """However its key's sessions fall."""
    ids = {random.Random(n).getrandbits(64): 10**12 + n * n for n in range(500)}
    wire = covered_wire("k", Covered(offset=2**40, ids=ids))

    assert len(msgspec.msgpack.encode(wire)) < 50 + len(ids) * REMEMBERED_ID_BYTES


class CoveredBefore(msgspec.Struct, frozen=True, array_like=True):
    """A covered key as it was stored before ids had ages."""

    key: str
    offset: int
    last_a: int
    ids: list[int] = []


class RecordBefore(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A checkpoint record of that time; parked sessions as plain values."""

    head: Head
    begins: bool = False
    ends: bool = False
    covered: list[CoveredBefore] = []
    parked: list[tuple[object, ...]] = []


HEAD = Head(epoch=1, seq=1, position=20, safe_offset=10, a=100, checkpoint_from=0, newest=0)


def test_a_checkpoint_of_the_version_before_is_read() -> None:
    """Its ids are as old as the key's last session, and its parked sessions are whole."""
    record = RecordBefore(
        head=HEAD,
        begins=True,
        ends=True,
        covered=[CoveredBefore("k", 12, 300, [1, 2])],
        parked=[("p", 1, 2, 3, 4, 5, 6, 7, [8, 9], 0, [b"a", b"b"])],
    )

    found = at_once(folding_records(HEAD, [(0, msgspec.msgpack.encode(record))], REPEAT_MS))

    assert found.covered == {"k": Covered(offset=12, ids={1: 300, 2: 300})}
    assert (found.parked["p"].data, list(found.parked["p"].ids or ())) == ([b"a", b"b"], [8, 9])


def test_the_version_before_reads_a_checkpoint_of_this_one() -> None:
    """A rolling update may move a stream back to an older member: it ignores what it does not know."""
    wire = covered_wire("k", Covered(offset=12, ids={1: 100, 2: 300}))
    raw = encode_record(CheckpointRecord(head=HEAD, covered=[wire]))

    old = msgspec.msgpack.decode(raw, type=RecordBefore)

    assert old.covered == [CoveredBefore("k", 12, 300, [1, 2])]
    assert decode_record(raw).covered == [CoveredWire("k", 12, 300, [1, 2], [(200, 1), (0, 1)])]


def test_all_old_ids_are_forgotten_but_the_newest() -> None:
    """The newest decides when the key's entry may go."""
    ids: Ids = {n: 10 * n for n in range(5)}
    forget_old(ids, 25, 0)
    assert ids == {3: 30, 4: 40}

    forget_old(ids, 10**6, 0)
    assert ids == {4: 40}


def test_a_covered_key_counts_the_ids_that_no_checkpoint_has() -> None:
    """A commit writes these; without it the entry is needed until the safe offset has passed it."""
    covered = CoveredKeys(100)
    session = OpenSession("k", 5, 0, 0, 0, 0)
    session.ids = {1: None, 2: None}
    covered.cover_session(session, 5, 0)

    assert [change.new_ids for change in covered.take_changes(0, 0).values()] == [2]
    assert not is_droppable(Covered(offset=5), 5, 0, 100)
    assert is_droppable(Covered(offset=5), 6, 0, 100)
