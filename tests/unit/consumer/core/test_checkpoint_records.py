"""What a new owner makes of stored checkpoint records, and what a commit delivers."""

from __future__ import annotations

import msgspec
import pytest

from services.consumer.core.commits.checkpoint import find_head, folding_records
from services.consumer.core.commits.checkpoint_format import (
    CheckpointRecord,
    CoveredWire,
    ParkedWire,
    covered_wire,
    encode_record,
    size_of_covered,
    size_of_session,
)
from services.consumer.core.commits.chunks import size_of_part
from services.consumer.core.commits.delivery import Deliveries
from services.consumer.core.sessions.state import Closed, Covered, OpenSession
from services.consumer.core.slices import at_once
from shared.errors import InvalidInput
from shared.model.head import Head
from shared.model.sessions import parse_session, session_id

HEAD = Head(epoch=1, seq=1, position=20, safe_offset=9, checkpoint_from=4, newest=4)


def parked(key: str, offset: int, *, start: int = 0, ids_start: int = 0) -> ParkedWire:
    """A parked session of one fragment with one id, or a later chunk of it."""
    return ParkedWire(key, offset, offset, 0, 0, 0, 0, 0, [offset], start, [b"{}"], ids_start)


def record(*, begins: bool = True, ends: bool = True, **entries: object) -> bytes:
    """A stored record of a whole set."""
    return encode_record(CheckpointRecord(head=HEAD, begins=begins, ends=ends, **entries))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("marks", "begin"),
    [
        (["begins", "ends"], 0),
        (["begins ends"], 0),
        (["begins ends", "", "begins ends", ""], 2),
        (["begins ends", "begins"], 0),
        (["begins"], None),
        (["", ""], None),
        ([], None),
    ],
)
def test_a_head_stands_on_the_last_whole_set_that_was_completed(marks: list[str], begin: int | None) -> None:
    """A set that was begun counts only with its end; without one the stream is new."""
    records = [record(begins="begins" in mark, ends="ends" in mark) for mark in marks]

    found = find_head(enumerate(records))

    expected = None if begin is None else (begin, len(records) - 1)
    assert (found and (found.checkpoint_from, found.newest)) == expected


@pytest.mark.parametrize("offset", [5, 6])
def test_a_session_that_closed_after_it_was_parked_is_not_open(offset: int) -> None:
    """Even one of a single fragment, which its key is covered through."""
    ended = record(parked=[parked("k", 5), parked("later", 7)], covered=[CoveredWire("later", 6, 0)])
    after = encode_record(CheckpointRecord(head=HEAD, covered=[CoveredWire("k", offset, 0)]))

    found = at_once(folding_records(msgspec.structs.replace(HEAD, newest=5), [(4, ended), (5, after)], 0))

    assert list(found.parked) == ["later"]


@pytest.mark.parametrize("missing", [{"start": 2}, {"ids_start": 2}])
def test_a_chunk_that_does_not_follow_its_session_is_unreadable(missing: dict[str, int]) -> None:
    """Fragments or ids are lost; the operator must know."""
    next_chunk = parked("k", 5, **({"start": 1, "ids_start": 1} | missing))

    with pytest.raises(InvalidInput, match="are missing"):
        at_once(folding_records(HEAD, [(4, record(parked=[parked("k", 5), next_chunk]))], 0))


@pytest.mark.parametrize(("offset", "begins"), [(3, True), (5, True), (4, False)])
def test_a_checkpoint_begins_with_the_whole_set_that_its_head_names(offset: int, begins: bool) -> None:
    """Anything else is not this stream's checkpoint, or has lost its beginning."""
    head = msgspec.structs.replace(HEAD, newest=offset)

    with pytest.raises(InvalidInput, match="no whole set begins"):
        at_once(folding_records(head, [(offset, record(begins=begins))], 0))


def test_a_session_that_is_written_again_has_only_the_new_ids() -> None:
    """From the place on where the chunk begins: a whole set repeats what was there before."""
    first = msgspec.structs.replace(parked("k", 5), ids=[1, 2, 3])
    again = msgspec.structs.replace(parked("k", 5, ids_start=1), ids=[9])

    found = at_once(folding_records(HEAD, [(4, record(parked=[first, again]))], 0))

    assert list(found.parked["k"].ids or ()) == [1, 9]


def test_the_size_of_a_whole_set_is_known_after_loading() -> None:
    """It decides when the next one is written."""
    records = record(
        parked=[parked("a", 5), parked("b", 6)], covered=[CoveredWire("c", 8, 0), CoveredWire("d", 9, 0)]
    )

    found = at_once(folding_records(HEAD, [(4, records)], 0))

    assert found.whole_bytes == sum(map(size_of_session, found.parked.values())) + sum(
        size_of_covered(key, entry) for key, entry in found.covered.items()
    )


@pytest.mark.parametrize("ids", [0, 10, 1_000])
@pytest.mark.parametrize("key", ["k", "k" * 200])
def test_the_size_of_a_covered_key_is_about_what_it_takes(key: str, ids: int) -> None:
    """With ids of full length and of one age, within 60 bytes."""
    entry = Covered(offset=2**40, ids=dict.fromkeys(range(2**63, 2**63 + ids), 2**41))

    encoded = len(msgspec.msgpack.encode(covered_wire(key, entry)))

    assert encoded <= size_of_covered(key, entry) <= encoded + 60


@pytest.mark.parametrize("count", [0, 3, 300])
def test_the_size_of_an_entry_is_about_what_it_takes(count: int) -> None:
    """Of a covered key whose ids have an age each, and of a parked session."""
    large = range(2**63, 2**63 + count)
    aged = CoveredWire("key", 2**40, 2**41, list(large), [(2**20 + n, 1) for n in range(count)])
    session = ParkedWire(
        "key", 2**41, 2**41, 2**41, 2**41, 2**41, 2**41, 2**41, list(large), 2**20, [b"x" * 70_000] * count
    )

    for entry in (aged, session):
        encoded = len(msgspec.msgpack.encode(entry))
        assert encoded <= size_of_part(entry) <= encoded + 60


def test_a_delivery_says_whose_session_it_is_and_where_it_stands() -> None:
    """Encoded when it is read, one or several."""
    closed = []
    for n in (7, 8):
        session = OpenSession(f"k{n}", n, 100, 90, 0, 0)
        session.data, session.bytes = [b'{"key":"k"}'], 11
        session.last_offset, session.last_t = n + 10, 95
        closed.append(Closed(session=session, reason="gap", closed_at=200))
    deliveries = Deliveries(closed, "g", 3, 5, 52)

    key, value = deliveries[0]

    assert key == b"k7"
    assert msgspec.structs.asdict(parse_session(value)) == {
        "id": session_id("g", 3, "k7", 7, 52),
        "group": "g",
        "key": "k7",
        "stream": 3,
        "epoch": 5,
        "first_offset": 7,
        "last_offset": 17,
        "first_time": 90,
        "last_time": 95,
        "opened_at": 100,
        "closed_at": 200,
        "fragments": 1,
        "bytes": 11,
        "reason": "gap",
        "log": 52,
        "data": [msgspec.Raw(b'{"key":"k"}')],
    }
    assert [*deliveries[1:]] == [deliveries[1]]
    assert [*deliveries[:]] == [*deliveries]
