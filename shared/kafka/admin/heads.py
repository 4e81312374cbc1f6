"""The heads of a group's streams, read from the metadata of its committed offsets.

The sinks of a member, control's view and the audit read heads. A committed offset without a valid head
concerns only its own stream: the heads of the others are returned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from shared.errors import InvalidInput
from shared.kafka.admin.committed import KafkaGroup
from shared.model.head import Head, parse_head
from shared.model.names import Names


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredHeads:
    """The heads by stream, and for streams with an invalid head the reason.

    A stream without a committed offset is in neither.
    """

    heads: Mapping[int, Head]
    unreadable: Mapping[int, str]

    def of(self, stream: int) -> Head | None:
        """The stream's head, None if nothing is committed. Raises InvalidInput if it is invalid."""
        if stream in self.unreadable:
            raise InvalidInput(f"stream {stream}: {self.unreadable[stream]}")
        return self.heads.get(stream)

    def all(self) -> Mapping[int, Head]:
        """All heads. Raises InvalidInput if any of them is invalid."""
        for stream in self.unreadable:
            self.of(stream)
        return self.heads


async def read_heads(kafka_group: KafkaGroup, names: Names, streams: Iterable[int]) -> StoredHeads:
    """The heads of a group's streams, in one request of 1–3 ms. Raises KafkaUnavailable."""
    found = await kafka_group.committed([(names.fragments(n), 0) for n in streams])
    heads: dict[int, Head] = {}
    unreadable: dict[int, str] = {}
    for (topic, _), committed in found.items():
        stream = names.stream_of(topic)
        if stream is None or committed.offset < 0:
            continue
        try:
            heads[stream] = parse_head(committed.offset, committed.metadata)
        except InvalidInput as error:
            unreadable[stream] = error.detail
    return StoredHeads(heads=heads, unreadable=unreadable)
