"""Reading heads: an answer that leaves streams out is asked for again, never taken for a new stream."""

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
    """Answers as told, one answer a call; an exception is raised. The coordinator is another one each time
    that it is looked for.
    """

    def __init__(self, answers: Sequence[Any]) -> None:
        self.answers = list(answers)
        self.looked = 0

    async def find_coordinator(self, group: str) -> int:
        self.looked += 1
        return self.looked

    async def list_consumer_group_offsets(
        self, group: str, group_coordinator_id: int, partitions: list[TopicPartition]
    ) -> Any:
        assert group_coordinator_id == self.looked
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_a_stream_without_a_committed_offset_has_no_head() -> None:
    """Kafka says -1 for it; the others keep theirs."""
    found = await read_heads(ScriptedAdmin([WHOLE]), NAMES, "default", [0, 1])

    assert found == StoredHeads(heads={0: HEAD}, unreadable={})
    assert (found.of(0), found.of(1), found.all()) == (HEAD, None, {0: HEAD})


async def test_an_answer_without_the_partitions_is_no_answer() -> None:
    """A coordinator that is loading answers with nothing, or with an error: then it is asked again."""
    some = dict(list(WHOLE.items())[1:])
    admin = ScriptedAdmin([{}, GroupLoadInProgressError(), some, WHOLE])

    assert (await read_heads(admin, NAMES, "default", [0, 1])).heads == {0: HEAD}
    assert admin.answers == []


async def test_the_coordinator_is_looked_for_once_and_again_when_it_does_not_answer() -> None:
    """Looking for it costs a request; one that has moved is not asked for ever."""
    coordinator = Coordinator()
    admin = ScriptedAdmin([WHOLE, WHOLE, KafkaConnectionError("gone"), WHOLE, {}, WHOLE])

    for looked in (1, 1):
        await read_heads(admin, NAMES, "default", [0, 1], coordinator)
        assert admin.looked == looked
    with pytest.raises(KafkaUnavailable):
        await read_heads(admin, NAMES, "default", [0, 1], coordinator)
    for looked in (2, 3):
        await read_heads(admin, NAMES, "default", [0, 1], coordinator)
        assert admin.looked == looked


async def test_a_committed_offset_without_a_head_is_that_stream_s_matter() -> None:
    """Somebody reset the group's offset of one stream by another tool: the others open as ever."""
    strange = WHOLE | {TopicPartition(NAMES.fragments(1), 0): OffsetAndMetadata(7, "")}

    found = await read_heads(ScriptedAdmin([strange]), NAMES, "default", [0, 1])

    assert found.of(0) == HEAD
    with pytest.raises(InvalidInput, match="stream 1: the committed offset 7 carries no head"):
        found.of(1)
    with pytest.raises(InvalidInput, match="stream 1"):
        found.all()
