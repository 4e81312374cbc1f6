"""Reads records and delivered sessions in Spark's Python workers: Arrow batches in, small rows out.

A digest of 16 bytes replaces each fragment, so the rows sort quickly and spill little. `judging.py` reads
what these functions write.
"""

from __future__ import annotations

import gc
import hashlib
import marshal
import zlib
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from services.control.spark.audit.facts import LogFacts, TopicFacts
from services.control.spark.audit.reading import read_record
from services.control.spark.kafka.delivered import LOG, NUMBERS, TEXTS, NotASession, read_session

DIGEST_BYTES = 16
SEPARATOR = "\x1f"
"""Separates the fields in a checksum. None of them can contain it but the last, the key."""
SUMMED_FIELDS = (*NUMBERS, LOG, "id", "group", "reason", "key")
assert set(SUMMED_FIELDS) == {*NUMBERS, *TEXTS, LOG}

FACTS, TABLE, DELIVERED, FRAGMENT = -1, 0, 1, 2
"""The rank of a row, by which rows at the same offset are sorted."""
ROW_SCHEMA = "hash long, key string, stream int, offset long, rank int, body binary"
"""The rows to sort, by all columns but `body`. `hash`: CRC-32 of the key; -1 - n for the facts for judge n.
`offset`: of the fragment, or of the session's first one. `body` depends on `rank`: JSON for a row of the
table, else a tuple by `marshal`."""

_ROW = pa.schema(
    [
        *(("hash", pa.int64()), ("key", pa.string()), ("stream", pa.int32()), ("offset", pa.int64())),
        *(("rank", pa.int32()), ("body", pa.binary())),
    ]
)
LARGE_GENERATION = 100_000
"""How many new objects start a garbage collection: rows have no cycles, and a batch makes some 30,000."""
_MOST_ROWS = 1000
"""Rows of one batch: sessions come in batches of few, because each may have 2 MB."""


def digest(fragment: bytes) -> bytes:
    """A digest of a fragment's bytes, 16 bytes long."""
    return hashlib.blake2b(fragment, digest_size=DIGEST_BYTES).digest()


def read_fragment_rows(
    batches: Iterator[pa.RecordBatch],
    future_ms: int,
    is_judged: Callable[[int, bytes, int], bool],
    judges: int,
    places: Mapping[int, Sequence[int]],
) -> Iterator[pa.RecordBatch]:
    """Records (stream, offset, appended, key, value) as rows; each holds the fragments of a key in a batch.

    Their body is a list of (offset, appended, t, w, a, end, id, size, digest): `t` is the effective time, `w`
    W before the fragment, `a` A including it (ms). The batches hold whole streams, each in the order of its
    offsets, so the running maxima need no other pass. `is_judged`: whether the fragment of a stream, a key
    and an offset is judged; the others count for the maxima alone. Each of the `judges` gets the facts.
    `places`: by stream, rising offsets at which W and A belong to the facts.
    """
    gc.set_threshold(LARGE_GENERATION)
    reader: _LogReader | None = None
    for batch in batches:
        for stream, offset, appended, key, value in zip(
            *(column.to_pylist() for column in batch.columns), strict=True
        ):
            if reader is None or stream != reader.stream:
                if reader is not None:
                    yield reader.take_rows()
                    yield from _for_all(reader.facts(), judges)
                reader = _LogReader(stream, offset, appended, future_ms, is_judged, places.get(stream, ()))
            reader.read(offset, appended, key, value or b"")
        if reader is not None:
            yield reader.take_rows()
    if reader is not None:
        yield from _for_all(reader.facts(), judges)


class _LogReader:
    """Reads the records of one stream, and remembers its facts."""

    def __init__(
        self,
        stream: int,
        first: int,
        first_a: int,
        future_ms: int,
        is_judged: Callable[[int, bytes, int], bool],
        places: Sequence[int],
    ) -> None:
        self.stream = stream
        self._future_ms = future_ms
        self._is_judged = is_judged
        self._first, self._first_a = first, first_a
        self._next, self._gap = first, -1
        self._w = self._a = -1
        self._places = deque(places)
        self._at_places: list[tuple[int, int]] = []
        self._marks: list[tuple[int, int]] = []
        self._counts: Counter[str] = Counter()
        self._fragments = self._bytes = 0
        self._lines: defaultdict[bytes, list[tuple[Any, ...]]] = defaultdict(list)
        """By key, the fragments that are in no row yet."""

    def __repr__(self) -> str:
        return f"<_LogReader of stream {self.stream} at {self._next}>"

    def read(self, offset: int, appended: int, key: bytes | None, value: bytes) -> None:
        """Reads the next record; keeps it if it is a fragment to judge."""
        if offset != self._next and self._gap < 0:
            self._gap = offset
        self._next = offset + 1
        while self._places and offset >= self._places[0]:
            self._pass_place()
        a = self._a = appended if appended > self._a else self._a
        kind, _, time, end, fragment_id = read_record(key, value)
        if kind != "fragment":
            self._counts[kind] += 1
            if kind == "marker":
                assert time is not None
                self._marks.append((offset, time))
            return
        assert key is not None
        t = appended if time is None else min(time, appended + self._future_ms)
        w = self._w
        if t > w:
            self._w = t
        if not self._is_judged(self.stream, key, offset):
            return
        size = len(value)
        self._fragments += 1
        self._bytes += size
        self._lines[key].append((offset, appended, t, w, a, end, fragment_id, size, digest(value)))

    def take_rows(self) -> pa.RecordBatch:
        """The rows of the fragments that were read since the last call."""
        rows = [
            (zlib.crc32(key), key.decode(), self.stream, lines[0][0], FRAGMENT, marshal.dumps(lines))
            for key, lines in self._lines.items()
        ]
        self._lines.clear()
        return batch_of(rows, _ROW)

    def facts(self) -> LogFacts:
        """The facts, once all is read."""
        while self._places:
            self._pass_place()
        counts = self._counts | {"fragments": self._fragments, "bytes": self._bytes}
        ends = self._w, self._a, self._at_places
        return LogFacts(self.stream, self._first, self._gap, self._first_a, *ends, self._marks, dict(counts))

    def _pass_place(self) -> None:
        self._places.popleft()
        self._at_places.append((self._w, self._a))


def read_delivered_rows(
    batches: Iterator[pa.RecordBatch],
    is_wanted: Callable[[int, bytes], bool],
    judges: int,
    *,
    with_sums: bool,
) -> Iterator[pa.RecordBatch]:
    """Records (partition, offset, key, value) of the sessions topic as rows.

    Their body is (partition, offset, fields, has_own_key, sums, digests), or (partition, offset, None, why)
    for what cannot be read. `is_wanted`: whether the session of a stream and a key belongs to the part that
    is judged; unreadable records have the stream -1. `with_sums`: for the comparison with the table.
    """
    facts: TopicFacts | None = None
    read_to = -1
    for batch in batches:
        rows: list[tuple[Any, ...]] = []
        for partition, offset, key, value in zip(
            *(column.to_pylist() for column in batch.columns), strict=True
        ):
            if facts is None or partition != facts.partition:
                if facts is not None:
                    yield from _for_all(facts, judges)
                facts = TopicFacts(partition, offset, -1, {})
            elif offset != read_to and facts.gap < 0:
                facts = facts._replace(gap=offset)
            read_to = offset + 1
            row, closed_at = _read_delivered((partition, offset), key, value, is_wanted, with_sums=with_sums)
            if row is not None:
                rows.append(row)
                lowest = facts.closed_at
                lowest[row[2]] = min(closed_at, lowest.get(row[2], closed_at))
            if len(rows) >= _MOST_ROWS:
                yield batch_of(rows, _ROW)
                rows = []
        yield batch_of(rows, _ROW)
    if facts is not None:
        yield from _for_all(facts, judges)


def _read_delivered(
    place: tuple[int, int],
    key: bytes | None,
    value: bytes | None,
    is_wanted: Callable[[int, bytes], bool],
    *,
    with_sums: bool,
) -> tuple[tuple[Any, ...] | None, int]:
    """The row, and when the session closed."""
    try:
        fields, fragments = read_session(value or b"")
    except NotASession as error:
        row = (0, "", -1, -1, DELIVERED, marshal.dumps((*place, None, str(error))))
        return (row if is_wanted(-1, b"") else None), -1
    stream = fields["stream"] if 0 <= fields["stream"] < 2**31 else -1
    own_key = fields["key"].encode(errors="surrogatepass")
    if not is_wanted(stream, own_key):
        return None, -1
    first = _within_long(fields["first_offset"])
    # no session closes before it opens, and `opened_at` is judged exactly
    closed_at = _within_long(max(fields["closed_at"], fields["opened_at"]))
    name = fields["key"].encode(errors="replace")
    digests = b"".join([digest(fragment.encode()) for fragment in fragments])
    sums = _sums(fields, fragments) if with_sums else None
    body = marshal.dumps((*place, dict(fields), own_key == key, sums, digests))
    return (zlib.crc32(name), name.decode(), stream, first, DELIVERED, body), closed_at


def _sums(fields: Mapping[str, Any], fragments: Sequence[str]) -> tuple[str, str] | None:
    """Checksums of fields and fragments (hex), as in `lake_table.py`; None if no table can hold them."""
    try:
        text = SEPARATOR.join(str(fields[name]) for name in SUMMED_FIELDS).encode()
    except UnicodeEncodeError:
        return None
    # each with its length, so that no two lists of texts have the same checksum
    data = "".join([f"{len(fragment.encode())}:{fragment}" for fragment in fragments]).encode()
    return hashlib.sha256(text).hexdigest(), hashlib.sha256(data).hexdigest()


def _within_long(number: int) -> int:
    return number if -(2**63) <= number < 2**63 else -1


def _for_all(facts: LogFacts | TopicFacts, judges: int) -> Iterator[pa.RecordBatch]:
    """A row with the facts for each judge, in a batch of its own: a million markers take 20 MB.

    These rows sort before all others.
    """
    body = marshal.dumps((isinstance(facts, LogFacts), *facts))
    for judge in range(judges):
        yield batch_of([(-1 - judge, "", -1, -1, FACTS, body)], _ROW)


def batch_of(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.RecordBatch:
    """The rows as one batch."""
    columns = zip(*rows, strict=True) if rows else ((),) * len(schema)
    arrays = [pa.array(list(column), type=field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
