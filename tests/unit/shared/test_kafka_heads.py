"""Reading heads: an incomplete answer is requested again, never mistaken for a new stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import GroupLoadInProgressError, KafkaConnectionError
from aiokafka.structs import OffsetAndMetadata

from shared.errors import InvalidInput, KafkaUnavailable
from shared.kafka.heads import Coordinator, StoredHeads, read_heads
from shared.model.head import Head
from shared.model.names import Names

NAMES = Names()
HEAD = Head(epoch=1, seq=2, position=5, safe_offset=3)
WHOLE = {
    TopicPartition(NAMES.fragments(0), 0): OffsetAndMetadata(3, HEAD.metadata()),
    TopicPartition(NAMES.fragments(1), 0): OffsetAndMetadata(-1, ""),
}


class ScriptedAdmin:
    """Returns one scripted answer per call, or raises it. Every lookup finds another coordinator."""

    def __init__(self, answers: Sequence[Any]) -> None:
        self.answers = list(answers)
        self.lookups = 0

    async def find_coordinator(self, group: str) -> int:
        self.lookups += 1
        return self.lookups

    async def list_consumer_group_offsets(
        self, group: str, group_coordinator_id: int, partitions: list[TopicPartition]
    ) -> Any:
        assert group_coordinator_id == self.lookups
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_a_stream_without_a_committed_offset_has_no_head() -> None:
    """Kafka returns -1 for it; the other streams have theirs."""
    found = await read_heads(ScriptedAdmin([WHOLE]), NAMES, "default", [0, 1])

    assert found == StoredHeads(heads={0: HEAD}, unreadable={})
    assert (found.of(0), found.of(1), found.all()) == (HEAD, None, {0: HEAD})


async def test_an_incomplete_answer_is_requested_again() -> None:
    """A coordinator that is loading returns nothing, or an error."""
    some = dict(list(WHOLE.items())[1:])
    admin = ScriptedAdmin([{}, GroupLoadInProgressError(), some, WHOLE])

    assert (await read_heads(admin, NAMES, "default", [0, 1])).heads == {0: HEAD}
    assert admin.answers == []


async def test_the_coordinator_is_looked_up_once_and_again_after_a_failure() -> None:
    """A lookup costs a request, but a coordinator may move."""
    coordinator = Coordinator()
    admin = ScriptedAdmin([WHOLE, WHOLE, KafkaConnectionError("gone"), WHOLE, {}, WHOLE])

    for lookups in (1, 1):
        await read_heads(admin, NAMES, "default", [0, 1], coordinator)
        assert admin.lookups == lookups
    with pytest.raises(KafkaUnavailable):
        await read_heads(admin, NAMES, "default", [0, 1], coordinator)
    for lookups in (2, 3):
        await read_heads(admin, NAMES, "default", [0, 1], coordinator)
        assert admin.lookups == lookups


async def test_a_committed_offset_without_a_head_affects_only_its_stream() -> None:
    """If another tool resets the offset of one stream, the others still open."""
    strange = WHOLE | {TopicPartition(NAMES.fragments(1), 0): OffsetAndMetadata(7, "")}

    found = await read_heads(ScriptedAdmin([strange]), NAMES, "default", [0, 1])

    assert found.of(0) == HEAD
    with pytest.raises(InvalidInput, match="stream 1: the committed offset 7 carries no head"):
        found.of(1)
    with pytest.raises(InvalidInput, match="stream 1"):
        found.all()
