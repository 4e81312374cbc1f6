"""Checkpoint records stay below the size of a Kafka record, whatever sessions the settings allow."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from services.consumer.core.commits import chunks
from services.consumer.core.commits.checkpoint import folding_records, new_stream
from services.consumer.core.commits.checkpoint_format import ParkedWire
from services.consumer.core.commits.chunks import parked_chunks
from services.consumer.core.commits.commit import Commit
from services.consumer.core.commits.stream import Stream
from services.consumer.core.commits.turn import StreamLimits
from services.consumer.core.sessions.state import OpenSession
from services.consumer.core.slices import at_once
from services.consumer.settings import ConsumerSettings
from shared.kafka.admin.topics import MAX_RECORD_BYTES
from shared.model.group import GroupSettings
from tests.logs import commit_of
from tests.reference import Rec

LARGEST = GroupSettings(max_session_fragments=1_000_000, max_session_bytes=1_900_000)
"""The highest values that the settings accept."""
SMALLEST = len(b'{"key":"k"}')
"""Size of the smallest fragment."""


def stream_with(log: list[Rec]) -> Stream:
    """A stream that has folded the log, under the largest settings; a replay of more than 100 is too long."""
    stream = Stream(
        group="default",
        stream=0,
        epoch=1,
        settings=LARGEST,
        limits=StreamLimits(max_replay_fragments=100),
        checkpoint=new_stream(),
        now_s=0.0,
    )
    stream.fold(log, 0.0)
    return stream


def fragments(count: int, *, ids: bool, first: int = 0) -> list[Rec]:
    """Small fragments of one key."""
    values = ({"key": "k"} | ({"id": f"{n:06}"} if ids else {}) for n in range(first, first + count))
    return [Rec(first + n, 1_000, b"k", msgspec.json.encode(value)) for n, value in enumerate(values)]


def session_of(sizes: list[int], ids: int) -> OpenSession:
    """An open session with fragments of these sizes."""
    session = OpenSession("k", 0, 0, 0, 0, 0)
    session.data = [bytes([65 + n % 26]) * size for n, size in enumerate(sizes)]
    session.bytes = sum(sizes)
    session.ids = dict.fromkeys(range(2**62, 2**62 + ids)) or None
    return session


def joined(parts: list[ParkedWire]) -> tuple[list[bytes], list[int]]:
    """The fragments and ids of chunks, which must follow each other without a gap."""
    data: list[bytes] = []
    ids: list[int] = []
    for part in parts:
        assert (part.start, part.ids_start) == (len(data), len(ids))
        data += part.fragments
        ids += part.ids
    return data, ids


@pytest.mark.parametrize("ids", [True, False])
def test_the_largest_session_that_settings_allow_can_be_parked(ids: bool) -> None:
    """Its records fit, and a new owner finds it whole."""
    log = fragments(70_000 if ids else 170_000, ids=ids)
    stream = stream_with(log)

    commit = commit_of(stream)

    stream.committed(commit, range(len(commit.records)), 0.0)
    loaded = at_once(folding_records(stream.head, list(enumerate(commit.records)), 0)).parked["k"]
    assert len(commit.records) > 1
    assert max(map(len, commit.records)) < MAX_RECORD_BYTES / 2
    assert stream.head.safe_offset == len(log)
    assert (loaded.data, loaded.ids) == ([one.value for one in log], stream.assembler.open["k"].ids)


def test_a_session_that_is_parked_again_writes_only_what_is_new() -> None:
    """Fragments and ids alike."""
    stream = stream_with(fragments(20_000, ids=True))
    records: list[bytes] = []
    sizes = []
    for first in range(20_000, 20_800, 200):
        commit = commit_of(stream)
        stream.committed(commit, range(len(records), len(records) + len(commit.records)), 0.0)
        records += commit.records
        sizes.append(sum(map(len, commit.records)))
        stream.fold(fragments(200, ids=True, first=first), 0.0)

    stored = list(enumerate(records))[stream.head.checkpoint_from :]
    loaded = at_once(folding_records(stream.head, stored, 0)).parked["k"]
    assert max(sizes[2:]) < 200 * 60 < sizes[1] / 30
    assert len(loaded.data) == len(loaded.ids or ()) == 20_600


def test_the_largest_session_that_settings_allow_can_be_delivered() -> None:
    """A record of finished sessions has room for the smallest fragments and their commas."""
    log = fragments(LARGEST.max_session_bytes // SMALLEST, ids=False)
    log.append(Rec(len(log), 1_000, b"k", msgspec.json.encode({"key": "k", "end": True})))
    stream = stream_with(log)

    commit: Commit = commit_of(stream)

    assert len(commit.sessions[0][1]) < MAX_RECORD_BYTES - 4_096


def test_these_are_the_largest_settings() -> None:
    """A higher value is refused, so the tests above are about the worst."""
    fields = {field.name: field.metadata["spec"].allowed for field in dataclasses.fields(ConsumerSettings)}

    assert fields["max_session_fragments"].high == LARGEST.max_session_fragments
    assert fields["max_session_bytes"].high == LARGEST.max_session_bytes
    assert fields["max_fragment_bytes"].high < MAX_RECORD_BYTES - 4_096


@pytest.mark.parametrize("room", [150, 200, 1_000])
@pytest.mark.parametrize("sizes", [[], [10] * 30, [400, 1, 1, 400, 90], [1_000, 1_000]])
@pytest.mark.parametrize("ids", [0, 1, 100])
def test_chunks_are_a_session_in_order_and_have_bounded_sizes(room: int, sizes: list[int], ids: int) -> None:
    """Only a chunk with a single fragment and no id may be larger."""
    session = session_of(sizes, ids)

    parts = list(parked_chunks(session, room, rewrites=True))

    assert joined(parts) == (session.data, list(session.ids or ()))
    for part in parts:
        assert chunks.size_of_part(part) <= room or (len(part.fragments) == 1 and not part.ids)
