"""Heads in the committed offsets: an invalid one concerns its own stream only."""

from __future__ import annotations

import pytest

from shared.errors import InvalidInput
from shared.kafka.admin.committed import KafkaGroup
from shared.kafka.admin.heads import StoredHeads, read_heads
from shared.kafka.connect.cluster import Cluster
from shared.model.head import Head
from shared.model.names import Names
from tests.fakes.kafka_admin import AdministeredKafka
from tests.fakes.virtual_time import virtual_time

NAMES = Names()
HEAD = Head(epoch=1, seq=2, position=5, safe_offset=3)


async def heads_of(**committed: tuple[int, str]) -> StoredHeads:
    """The heads of streams 0 and 1, after these offsets and metadata were committed: `s0=…`, `s1=…`."""
    kafka = AdministeredKafka()
    for name, stored in committed.items():
        kafka.committed[NAMES.kafka_group("default"), (NAMES.fragments(int(name[1:])), 0)] = stored
    async with Cluster("fake:1", kafka.connect) as cluster:
        group = KafkaGroup(cluster, NAMES.kafka_group("default"))
        return await read_heads(group, NAMES, [0, 1])


@virtual_time
async def test_a_stream_without_a_committed_offset_has_no_head() -> None:
    """Kafka returns -1 for it; the other streams have theirs."""
    found = await heads_of(s0=(3, HEAD.metadata()))

    assert found == StoredHeads(heads={0: HEAD}, unreadable={})
    assert (found.of(0), found.of(1), found.all()) == (HEAD, None, {0: HEAD})


@virtual_time
async def test_a_stream_that_has_only_begun_has_a_head() -> None:
    """Its safe offset is 0; the stream before it has none."""
    begun = Head(epoch=1, seq=2, position=5, safe_offset=0)

    assert (await heads_of(s1=(0, begun.metadata()))).all() == {1: begun}


@virtual_time
async def test_a_committed_offset_without_a_head_affects_only_its_stream() -> None:
    """If another tool resets the offset of one stream, the others still open."""
    found = await heads_of(s0=(3, HEAD.metadata()), s1=(7, ""))

    assert found.of(0) == HEAD
    with pytest.raises(InvalidInput, match="stream 1: the committed offset 7 carries no head"):
        found.of(1)
    with pytest.raises(InvalidInput, match="stream 1"):
        found.all()
