"""Judges the sorted rows of many keys in turn, in Spark's Python workers: Arrow batches in, verdicts out.

The facts of all streams come first. Then come the rows, key by key. Those of a key are sorted by stream and
offset; at each offset come first the table's rows, then delivered sessions, then fragments. A row holds the
fragments of a key in one batch of the log, so they wait until the rows have passed their offsets. So one pass
judges sessions, routing and the table.
"""

from __future__ import annotations

import json
import marshal
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import starmap
from typing import Any

import pyarrow as pa

from services.control.spark.audit.facts import Facts, Given, LogFacts, TopicFacts
from services.control.spark.audit.fold import Line
from services.control.spark.audit.lake_verdict import LakeFacts, TableRow, TopicCopy, judge_lake
from services.control.spark.audit.routing import slot_of
from services.control.spark.audit.rows import DELIVERED, DIGEST_BYTES, FACTS, TABLE, batch_of
from services.control.spark.audit.verdict import Delivered, Finding, KeyVerdict, StreamFacts, Tally
from shared.model.group import GroupSettings

MOST_EXAMPLES = 20
VERDICT_SCHEMA = "kind string, n long, id string, stream int, key string, detail string"
"""A row is one of three: an example, which the sums count too; a sum over many keys (`id` is null); or what a
reader has read. Then `kind` is LOG_READ or TOPIC_READ, `stream` the stream or partition, `n` its first offset
and `detail` the first one after a gap."""
LOG_READ, TOPIC_READ = "log read", "topic read"

_VERDICT = pa.schema(
    [
        *(("kind", pa.string()), ("n", pa.int64()), ("id", pa.string()), ("stream", pa.int32())),
        *(("key", pa.string()), ("detail", pa.string())),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What every judge needs.

    `owners`: the stream of each slot; empty: no key counts as misrouted. `lake`: None: no table is compared.
    """

    group: str
    settings: GroupSettings
    given: Mapping[int, Given] = field(default_factory=dict)
    topic_is_whole: bool = True
    owners: Sequence[int] = ()
    lake: LakeFacts | None = None


def judge_rows(batches: Iterator[pa.RecordBatch], ground: Ground) -> Iterator[pa.RecordBatch]:
    """Rows (ROW_SCHEMA, sorted) as rows of VERDICT_SCHEMA."""
    judge = _Judge(ground)
    for batch in batches:
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            judge.add(*row)
    judge.end_key()
    yield batch_of(judge.verdicts(), _VERDICT)


class _Judge:
    """Judges one row after the other."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._facts = Facts()
        self._streams: Mapping[int, StreamFacts] | None = None
        self._tally = Tally()
        self._sums: Counter[str] = Counter()
        self._examples: dict[str, list[Finding]] = {}
        self._read: list[tuple[Any, ...]] = []
        self._key: str | None = None
        self._stream, self._log = -1, 0
        self._verdict: KeyVerdict | None = None
        self._fragments: dict[int, int] = {}
        """How many fragments of the key each stream has."""
        self._lines: deque[Line] = deque()
        """Fragments of the key and stream that are not folded yet."""
        self._offset = -1
        self._copies: list[TopicCopy] = []
        self._table_rows: list[TableRow] = []

    def __repr__(self) -> str:
        return f"<_Judge of {self._key!r} in stream {self._stream}>"

    def add(self, hashed: int, key: str, stream: int, offset: int, rank: int, body: bytes) -> None:
        """Judges a row as far as that is possible before the next one."""
        if rank == FACTS:
            self._learn(*marshal.loads(body), is_first=hashed == -1)
            return
        if stream != self._stream or key != self._key:
            self._begin(key, stream)
        if offset != self._offset:
            if self._copies or self._table_rows:
                self._end_offset()
            self._offset = offset
        if rank == TABLE:
            self._table_rows.append(_table_row(json.loads(body)))
            return
        verdict = self._verdict
        assert verdict is not None
        self._fold(verdict, before=offset)
        if rank == DELIVERED:
            self._note(self._deliver(verdict, *marshal.loads(body)))
        else:
            self._lines.extend(starmap(Line, marshal.loads(body)))

    def end_key(self) -> None:
        """Judges what is left of the key."""
        self._end_stream()
        if self._key is not None:
            self._note(self._routing(self._key))
        self._key, self._fragments = None, {}

    def verdicts(self) -> list[tuple[Any, ...]]:
        """The sums, examples of each kind, and what was read."""
        sums = self._sums + Counter(asdict(self._tally))
        rows: list[tuple[Any, ...]] = [(kind, n, None, None, None, None) for kind, n in sums.items()]
        for findings in self._examples.values():
            rows += [(one.kind, one.n, one.id, one.stream, one.key, one.detail) for one in findings]
        return rows + self._read

    def _learn(self, is_log: bool, *facts: Any, is_first: bool) -> None:
        """Keeps the facts. The first judge reports all of them, the others those that hint at a loss."""
        number, first, gap, *_ = facts
        if is_first or first > 0 or gap > 0:
            kind = LOG_READ if is_log else TOPIC_READ
            self._read.append((kind, first, None, number, None, str(gap)))
        if is_log:
            log = LogFacts(*facts)
            self._facts.logs[log.stream] = log
            if is_first:
                self._sums.update(log.counts)
        else:
            topic = TopicFacts(*facts)
            self._facts.topic[topic.partition] = topic

    def _begin(self, key: str, stream: int) -> None:
        ground = self._ground
        if self._streams is None:
            self._streams = self._facts.streams(
                ground.given, future_ms=ground.settings.future_ms, topic_is_whole=ground.topic_is_whole
            )
        self._end_stream()
        if key != self._key:
            self.end_key()
        facts = self._streams.get(stream) or StreamFacts(stream=stream, position=0)
        self._key, self._stream, self._log = key, stream, facts.log
        self._verdict = KeyVerdict(ground.group, key, ground.settings, facts, self._tally)

    def _end_offset(self) -> None:
        if self._ground.lake is not None:
            findings = judge_lake(
                self._copies,
                self._table_rows,
                stream=self._stream,
                key=self._key or "",
                facts=self._ground.lake,
                tally=self._tally,
                log=self._log,
            )
            self._note(findings)
        self._copies, self._table_rows = [], []

    def _end_stream(self) -> None:
        if self._copies or self._table_rows:
            self._end_offset()
        self._offset = -1
        if self._verdict is not None:
            self._fold(self._verdict, before=None)
            self._note(self._verdict.finish())
            self._verdict = None
        self._stream = -1

    def _fold(self, verdict: KeyVerdict, before: int | None) -> None:
        """Folds the fragments before the offset; None: all."""
        lines = self._lines
        folded = 0
        while lines and (before is None or lines[0].offset < before):
            if findings := verdict.feed(lines.popleft()):
                self._note(findings)
            folded += 1
        if folded:
            self._fragments[self._stream] = self._fragments.get(self._stream, 0) + folded

    def _deliver(
        self,
        verdict: KeyVerdict,
        partition: int,
        offset: int,
        fields: Mapping[str, Any] | None,
        what: Any,
        sums: tuple[str, str] | None = None,
        digests: bytes = b"",
    ) -> list[Finding]:
        """`what`: whether the record's key is the session's, or why the record cannot be read."""
        self._tally.delivered += 1
        if fields is None:
            return verdict.deliver(Delivered(None, (), why=what))
        if sums is not None:
            self._copies.append(TopicCopy(fields["id"], (partition, offset), *sums, fields["log"]))
        cuts = range(0, len(digests), DIGEST_BYTES)
        return verdict.deliver(
            Delivered(fields, [digests[cut : cut + DIGEST_BYTES] for cut in cuts], has_own_key=what)
        )

    def _routing(self, key: str) -> list[Finding]:
        """Whether all fragments of the key are in the stream that the table says, and in one."""
        findings = []
        owners = self._ground.owners
        if owners and self._fragments:
            slot = slot_of(key.encode())
            for stream, n in self._fragments.items():
                if stream != owners[slot]:
                    detail = f"{n} fragments of slot {slot}, which belongs to stream {owners[slot]}"
                    findings.append(Finding("misrouted", "", stream, key, detail, n))
        if len(self._fragments) > 1:
            detail = f"the key is in the streams {', '.join(map(str, self._fragments))}"
            findings.append(Finding("split_keys", "", min(self._fragments), key, detail))
        return findings

    def _note(self, findings: Sequence[Finding]) -> None:
        for finding in findings:
            self._sums[finding.kind] += finding.n
            examples = self._examples.setdefault(finding.kind, [])
            if len(examples) < MOST_EXAMPLES:
                examples.append(finding)


def _table_row(row: Mapping[str, Any]) -> TableRow:
    # Spark's JSON leaves out fields that are null
    place = (row["partition"], row["offset"]) if "offset" in row else None
    return TableRow(row["id"], place, row["fields"], row["data"], row["has_own_day"])
