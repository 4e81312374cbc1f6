"""A whole audit of random logs without Spark: its rows, sorted as Spark sorts them, through its judgement."""

from __future__ import annotations

import dataclasses
import marshal
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from typing import Any, Literal

import msgspec
import pyarrow as pa

from services.consumer.core.commits.delivery import delivered
from services.consumer.core.sessions.assembly import Assembler
from services.consumer.core.sessions.record import Record
from services.control.spark.audit.facts import Given
from services.control.spark.audit.judging import Ground, judge_rows
from services.control.spark.audit.lake_verdict import LakeFacts
from services.control.spark.audit.rows import TABLE, batch_of, read_delivered_rows, read_fragment_rows
from shared.model.group import GroupSettings
from tests.logs import SETTINGS, random_log

End = Literal["end", "split", "marker", "silence", "limit"]
"""What ends a session; three of them have the reason `gap`."""
GROUP = "g"
LAST = 2**31 - 1
_ROW = pa.schema(
    [
        *(("hash", pa.int64()), ("key", pa.string()), ("stream", pa.int32()), ("offset", pa.int64())),
        *(("rank", pa.int32()), ("body", pa.binary())),
    ]
)


@dataclasses.dataclass(slots=True, kw_only=True)
class World:
    """Logs by stream, what the sessions topic holds (its only partition), and what the table holds.

    A row of the table has its place in the topic and the record. `ends`: by value, what ended each session.
    `start`: what retention has left of the logs. `removed`: how many of its first records the topic has lost
    to it. `batch`: records of a batch that is read.
    """

    logs: list[list[Record]]
    topic: list[tuple[bytes, bytes]] = field(default_factory=list)
    table: list[tuple[int, bytes]] = field(default_factory=list)
    ends: dict[bytes, End] = field(default_factory=dict)
    settings: GroupSettings = SETTINGS
    owners: Sequence[int] = ()
    position: int = LAST
    silent_to: int | None = None
    start: int = 0
    table_position: int | None = None
    removed: int = 0
    batch: int = 9

    def deliver(self) -> None:
        """Delivers what owners close, by silence after each batch, and lets the table take it over."""
        for stream, log in enumerate(self.logs):
            ends = self._ends(log)
            assembler = Assembler(self.settings)
            for at in range(0, len(log), self.batch):
                for closed in assembler.feed(log[at : at + self.batch]) + assembler.close_due():
                    self.topic.append(delivered(closed, GROUP, stream, 1, 0))
                    self.ends[self.topic[-1][1]] = ends[closed.session.key, closed.session.first_offset]
        self.fill_table()

    def _ends(self, log: Sequence[Record]) -> dict[tuple[str, int], End]:
        """By key and first offset: what ends each session if nobody notices silence before the log's end."""
        ends: dict[tuple[str, int], End] = {}
        assembler = Assembler(self.settings)
        for record in log:
            by_gap: End = "marker" if record.key is None else "split"
            for closed in assembler.feed([record]):
                end = by_gap if closed.reason == "gap" else closed.reason
                ends[closed.session.key, closed.session.first_offset] = end
        for closed in assembler.close_due():
            ends[closed.session.key, closed.session.first_offset] = "silence"
        return ends

    def fill_table(self) -> None:
        """The table takes over what the topic holds, each session once."""
        places: dict[bytes, int] = {}
        for offset, (_, value) in enumerate(self.topic):
            places.setdefault(value, offset)
        self.table = [(offset, value) for value, offset in places.items()]

    def audit(self) -> tuple[Counter[str], list[tuple[str, str]]]:
        """The numbers that are not 0, and kind and key of the examples."""
        rows = [*self._table_rows(), *self._delivered_rows()]
        for stream, log in enumerate(self.logs):
            rows += self._fragment_rows(stream, log)
        rows.sort(key=lambda row: row[:5])
        position = len(self.topic) if self.table_position is None else self.table_position
        ground = Ground(
            group=GROUP,
            settings=self.settings,
            given=dict.fromkeys(range(len(self.logs)), self._given),
            topic_is_whole=not self.removed,
            owners=self.owners,
            lake=LakeFacts(start={0: self.removed}, end={0: len(self.topic)}, position={0: position}),
        )
        batches = (batch_of(rows[at : at + 7], _ROW) for at in range(0, len(rows), 7))
        verdicts = [row for batch in judge_rows(batches, ground) for row in batch.to_pylist()]
        sums = Counter(
            {row["kind"]: row["n"] for row in verdicts if row["id"] is None and row["stream"] is None}
        )
        return sums, sorted((row["kind"], row["key"]) for row in verdicts if row["id"] is not None)

    def _fragment_rows(self, stream: int, log: Sequence[Record]) -> list[Any]:
        left = log[self.start :]
        records = [(stream, one.offset, one.timestamp, one.key, one.value) for one in left]
        batches = self._batches(records, ("stream", "offset", "appended", "key", "value"))
        places = {stream: self._given.places}
        return _rows(read_fragment_rows(batches, self.settings.future_ms, lambda *_: True, 1, places))

    @property
    def _given(self) -> Given:
        silent_to = self.position if self.silent_to is None else self.silent_to
        return Given(position=self.position, silent_to=silent_to, start=self.start)

    def _delivered_rows(self) -> list[Any]:
        records = [(0, offset, key, value) for offset, (key, value) in enumerate(self.topic)][self.removed :]
        batches = self._batches(records, ("topic_partition", "topic_offset", "key", "value"))
        return _rows(read_delivered_rows(batches, lambda *_: True, 1, with_sums=True))

    def _table_rows(self) -> Iterable[Any]:
        """Rows as Spark makes them of the table: `test_spark_audit.py` compares the sums."""
        records = [(0, at, msgspec.json.decode(value)["key"].encode(), value) for at, value in self.table]
        batches = self._batches(records, ("topic_partition", "topic_offset", "key", "value"))
        for row in _rows(read_delivered_rows(batches, lambda *_: True, 1, with_sums=True)):
            if row[4] < TABLE:
                continue  # the facts
            partition, offset, fields, _, sums, _ = marshal.loads(row[5])
            body = {"id": fields["id"], "fields": sums[0], "data": sums[1]}
            body |= {"partition": partition, "offset": offset, "has_own_day": True}
            yield *row[:4], TABLE, msgspec.json.encode(body)

    def _batches(self, rows: Sequence[Sequence[Any]], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        for at in range(0, len(rows), self.batch):
            columns = zip(*rows[at : at + self.batch], strict=True)
            arrays = [pa.array(list(column)) for column in columns]
            yield pa.RecordBatch.from_arrays(arrays, names=list(names))


def world(seed: int, streams: int = 2, length: int = 80, **more: Any) -> World:
    """Random logs of the same keys in each stream, with everything delivered and in the table."""
    draw = random.Random(seed)
    one = World(logs=[list(random_log(draw, length)) for _ in range(streams)], **more)
    one.deliver()
    return one


def _rows(batches: Iterable[pa.RecordBatch]) -> list[Any]:
    return [row for batch in batches for row in zip(*(one.to_pylist() for one in batch.columns), strict=True)]
