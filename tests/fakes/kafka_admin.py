"""What the brokers in memory answer to an administrator: topics, settings, committed offsets, deletions.

Requests arrive as the bytes of the newest version that aiokafka knows, and so do the answers.
"""

from __future__ import annotations

from collections.abc import Iterable
from io import BytesIO
from types import SimpleNamespace
from typing import Any

from aiokafka.protocol.api import Request

from shared.kafka.wire.alter_configs import ChangeSettings
from tests.fakes.kafka_transactions import TransactionalKafka

EXISTS, NOT_CONTROLLER, NOT_COORDINATOR, UNKNOWN_TOPIC, INVALID, INVALID_TOPIC = 36, 41, 16, 3, 40, 17
NEWEST = dict.fromkeys(range(80), (0, 99))
_OF_THE_TOPIC, _DEFAULT = 1, 5


class AdministeredKafka(TransactionalKafka):
    """Brokers with topics that can be created. `settings`: those that a topic has of its own.

    `defaults`: the settings of every other topic. `asked`: the node and the name of each request.
    `refused`: partitions of which the coordinator answers an error code only, or nothing if that is None.
    """

    def __init__(self, brokers: int = 1) -> None:
        super().__init__(brokers)
        self.settings: dict[str, dict[str, str]] = {}
        self.defaults: dict[str, str] = {}
        self.asked: list[tuple[int, str]] = []
        self.refused: dict[tuple[str, int], int | None] = {}
        self.members = 0
        """How many processes are in each group."""
        self.rejected: set[str] = set()
        """Topics that are rejected when they are created, although a trial says nothing."""

    async def answer(self, node: int, request: Any) -> Any:
        """The answer, in real bytes; an error code in the place of every row's, if the request is refused."""
        kind = type(request).__name__
        self.asked.append((node, kind))
        if not isinstance(request, Request | ChangeSettings) or not hasattr(self, f"_{kind}"):
            return await super().answer(node, request)
        struct = request.prepare(NEWEST)
        # by its schema: the constructors of our own requests take other arguments
        asked = SimpleNamespace(
            **dict(zip(struct.SCHEMA.names, struct.SCHEMA.decode(BytesIO(struct.encode())), strict=True))
        )
        code = self.refusals[type(request)].popleft() if self.refusals[type(request)] else 0
        answer = struct.RESPONSE_TYPE(*getattr(self, f"_{kind}")(node, asked, code))
        return type(answer).decode(BytesIO(answer.encode()))

    def _CreateTopicsRequest(self, node: int, asked: Any, code: int) -> Iterable[Any]:  # noqa: N802
        code = code or (0 if node == self.controller else NOT_CONTROLLER)
        rows: list[tuple[str, int, str | None]] = []
        for topic, partitions, replication, _, settings in asked.create_topic_requests:
            is_old = (topic, 0) in self.partitions
            is_alike = any(_likeness(one) == _likeness(topic) for one, _ in self.partitions) and not is_old
            if not code and (is_alike or (topic in self.rejected and not asked.validate_only)):
                rows.append((topic, INVALID_TOPIC, "it collides with an existing topic"))
                continue
            if not code and not is_old and not asked.validate_only:
                self.settings[topic] = dict(settings)
                for number in range(partitions):
                    self.create(topic, number).replicas = replication
            rows.append((topic, code or (EXISTS if is_old else 0), "refused" if code else None))
        return 0, rows

    def _DeleteTopicsRequest(self, node: int, asked: Any, code: int) -> Iterable[Any]:  # noqa: N802
        for place in [place for place in self.partitions if place[0] in asked.topics]:
            del self.partitions[place]
        return 0, [(topic, code) for topic in asked.topics]

    def _DescribeConfigsRequest(self, node: int, asked: Any, code: int) -> Iterable[Any]:  # noqa: N802
        rows = []
        for kind, topic, wanted in asked.resources:
            own = self.settings.get(topic, {})
            entries: list[Any] = [
                (name, value, False, _OF_THE_TOPIC if name in own else _DEFAULT, False, [])
                for name, value in (self.defaults | own).items()
                if wanted is None or name in wanted
            ]
            rows.append((code, "refused" if code else None, kind, topic, [] if code else entries))
        return 0, rows

    def _ChangeSettings(self, node: int, asked: Any, code: int) -> Iterable[Any]:  # noqa: N802
        rows: list[Any] = []
        for kind, topic, entries, _ in asked.resources:
            if not code:
                self.settings.setdefault(topic, {}).update((name, value) for name, _, value, _ in entries)
            rows.append((code, "refused" if code else None, kind, topic, {}))
        return 0, rows, {}

    def _DeleteRecordsRequest(self, node: int, asked: Any, code: int) -> Iterable[Any]:  # noqa: N802
        topics: list[Any] = []
        for topic, rows, _ in asked.topics:
            answers: list[Any] = []
            for number, below, _ in rows:
                partition = self.partitions.get((topic, number))
                error = code or (UNKNOWN_TOPIC if partition is None else 0 if partition.leader == node else 6)
                if partition is not None and not error:
                    partition.start = max(partition.start, below)
                answers.append((number, -1 if partition is None else partition.start, error, {}))
            topics.append((topic, answers, {}))
        return 0, topics, {}

    def _OffsetFetchRequest(self, node: int, asked: Any, code: int) -> Iterable[Any]:  # noqa: N802
        code = code or (0 if node == self.coordinator else NOT_COORDINATOR)
        topics: list[Any] = []
        every = [(topic, [n]) for group, (topic, n) in self.committed if group == asked.consumer_group]
        for topic, numbers in [] if code else every if asked.topics is None else asked.topics:
            rows: list[Any] = []
            for number in numbers:
                error = self.refused.get((topic, number), 0)
                found = self.committed.get((asked.consumer_group, (topic, number)))
                if error is not None:
                    rows.append((number, *((-1, "") if error or found is None else found), error))
            topics.append((topic, rows))
        return 0, topics, code

    def _DescribeGroupsRequest(self, node: int, asked: Any, code: int) -> Iterable[Any]:  # noqa: N802
        code = code or (0 if node == self.coordinator else NOT_COORDINATOR)
        members: list[Any] = [(f"m{n}", "c", "h", b"", b"") for n in range(self.members)]
        return 0, [(code, group, "Stable", "consumer", "range", members) for group in asked.groups]

    def _OffsetCommitRequest(self, node: int, asked: Any, code: int) -> Iterable[Any]:  # noqa: N802
        code = code or (0 if node == self.coordinator else NOT_COORDINATOR)
        topics = []
        for topic, rows in asked.topics:
            for number, offset, metadata in [] if code else rows:
                self.committed[asked.consumer_group, (topic, number)] = offset, metadata
            topics.append((topic, [(number, code) for number, *_ in rows]))
        return 0, topics

    def _OffsetDeleteRequest(self, node: int, asked: Any, code: int) -> Iterable[Any]:  # noqa: N802
        code = code or (0 if node == self.coordinator else NOT_COORDINATOR)
        topics = []
        for topic, numbers in [] if code else asked.topics:
            for number in numbers:
                self.committed.pop((asked.group_id, (topic, number)), None)
            topics.append((topic, [(number, 0) for number in numbers]))
        return code, 0, topics


def _likeness(topic: str) -> str:
    """What two topics must not share, as their metrics would have one name."""
    return topic.replace(".", "_")
