"""Reading heads: an answer that leaves streams out is asked for again, never taken for a new stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aiokafka import TopicPartition
from aiokafka.errors import GroupLoadInProgressError
from aiokafka.structs import OffsetAndMetadata

from shared.heads import Head
from shared.kafka import read_heads
from shared.names import Names

NAMES = Names()
HEAD = Head(epoch=1, seq=2, position=5, safe_offset=3)
WHOLE = {
    TopicPartition(NAMES.fragments(0), 0): OffsetAndMetadata(3, HEAD.metadata()),
    TopicPartition(NAMES.fragments(1), 0): OffsetAndMetadata(-1, ""),
}


class ScriptedAdmin:
    """Answers as told, one answer a call; an exception is raised."""

    def __init__(self, answers: Sequence[Any]) -> None:
        self.answers = list(answers)

    async def list_consumer_group_offsets(self, group: str, partitions: list[TopicPartition]) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_a_stream_without_a_committed_offset_has_no_head() -> None:
    """Kafka says -1 for it; the others keep theirs."""
    assert await read_heads(ScriptedAdmin([WHOLE]), NAMES, "default", [0, 1]) == {0: HEAD}


async def test_an_answer_without_the_partitions_is_no_answer() -> None:
    """A coordinator that is loading answers with nothing, or with an error: then it is asked again."""
    some = dict(list(WHOLE.items())[1:])
    admin = ScriptedAdmin([{}, GroupLoadInProgressError(), some, WHOLE])

    assert await read_heads(admin, NAMES, "default", [0, 1]) == {0: HEAD}
    assert admin.answers == []
