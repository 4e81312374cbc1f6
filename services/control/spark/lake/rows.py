"""Turns a session's record into a row of the table. Runs in executors.

Nearly all records are spelled as `shared.model.sessions` writes them: the fragments come last, with nothing
but commas between them. msgspec reads these in one call. The strict reader of `delivered.py` decides about
all others, so both accept the same records.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from itertools import accumulate
from operator import attrgetter
from typing import Annotated, Any, Final

import msgspec
import pyarrow as pa
from msgspec import Meta

from services.control.spark.kafka.delivered import LOG, NUMBERS, TEXTS, NotASession, read_session
from services.control.spark.lake.checksums import checksum_of
from services.control.spark.lake.sums import MODULUS, Span

LATEST_MS: Final = 253_402_300_799_999
"""The last millisecond of the year 9999."""
DAY_MS: Final = 86_400_000
EPOCH: Final = date(1970, 1, 1)
MOST_WHY: Final = 200
_BEGIN_DATA: Final = b'"data":['
_END: Final = b"]}"
_TIMES: Final = ("first_time", "last_time", "opened_at", "closed_at")

Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Time = Annotated[int, Meta(ge=0, le=LATEST_MS)]

TEXT_COLUMNS: Final = ("id", "key", "reason")
NUMBER_COLUMNS: Final = (*NUMBERS, LOG)
_OPENED_AT: Final = (*TEXT_COLUMNS, *NUMBER_COLUMNS).index("opened_at")
_ARROW: Final = pa.schema(
    [
        *((name, pa.string()) for name in TEXT_COLUMNS),
        *((name, pa.int64()) for name in NUMBER_COLUMNS),
        ("topic_partition", pa.int32()),
        ("topic_offset", pa.int64()),
        ("day", pa.date32()),
        ("checksum", pa.int64()),
        ("data", pa.list_(pa.string())),
    ]
)
ROW_SCHEMA: Final = ", ".join(
    [
        *(f"`{name}` STRING" for name in TEXT_COLUMNS),
        *(f"`{name}` BIGINT" for name in NUMBER_COLUMNS),
        *("topic_partition INT", "topic_offset BIGINT", "day DATE", "checksum BIGINT", "data ARRAY<STRING>"),
    ]
)
"""A session as `parse_rows` returns it; group and topic are the same for all rows of a batch."""
NARROW: Final = (
    "id",
    "stream",
    "first_offset",
    "opened_at",
    "fragments",
    "bytes",
    "topic_partition",
    "topic_offset",
    "day",
    "checksum",
)
NARROW_SCHEMA: Final = (
    "id STRING, stream BIGINT, first_offset BIGINT, opened_at BIGINT, fragments BIGINT, bytes BIGINT, "
    "topic_partition INT, topic_offset BIGINT, day DATE, checksum BIGINT"
)
_NARROW_ARROW: Final = pa.schema([_ARROW.field(name) for name in NARROW])
WHY_SCHEMA: Final = (
    "topic_partition INT, topic_offset BIGINT, key BINARY, value BINARY, why STRING, appended BIGINT"
)
_WHY_ARROW: Final = pa.schema(
    [
        *(("topic_partition", pa.int32()), ("topic_offset", pa.int64()), ("key", pa.binary())),
        *(("value", pa.binary()), ("why", pa.string()), ("appended", pa.int64())),
    ]
)

Counts = tuple[int, int, int, int, int, dict[str, Span]]
"""Sessions, their fragments, the fragments' bytes, unreadable records, bytes of all records; rows by day."""


class _Usual(msgspec.Struct, frozen=True, gc=False):
    id: str
    group: str
    key: str
    stream: Int64
    epoch: Int64
    first_offset: Int64
    last_offset: Int64
    first_time: Time
    last_time: Time
    opened_at: Time
    closed_at: Time
    fragments: Int64
    bytes: Int64
    reason: str
    data: list[msgspec.Raw]
    log: Int64 = 0


_usual = msgspec.json.Decoder(_Usual).decode
Fields = tuple[Any, ...]
"""The values of TEXT_COLUMNS and NUMBER_COLUMNS."""
_fields_of: Final[Callable[[_Usual], Fields]] = attrgetter(*TEXT_COLUMNS, *NUMBER_COLUMNS)


def read_row(raw: bytes, group: str) -> tuple[Fields, list[bytes]]:
    """The fields of a session of the group, and its fragments' bytes. Raises NotASession."""
    try:
        one = _usual(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _read_strictly(raw, group)
    data = list(map(bytes, one.data))
    start = raw.find(_BEGIN_DATA) + len(_BEGIN_DATA)
    # the fragments lie in this order behind `start`, so their lengths leave room for nothing but the commas
    end = start + sum(map(len, data)) + max(0, len(data) - 1)
    if end + len(_END) != len(raw) or not raw.endswith(_END) or one.group != group or not _is_text(raw):
        return _read_strictly(raw, group)
    return _fields_of(one), data


def _read_strictly(raw: bytes, group: str) -> tuple[Fields, list[bytes]]:
    fields, fragments = read_session(raw)
    for name in (*NUMBERS, LOG):
        if not -(2**63) <= fields[name] < 2**63:
            raise NotASession(f"`{name}` does not fit in 64 bits")
    for name in _TIMES:
        if not 0 <= fields[name] <= LATEST_MS:
            raise NotASession(f"`{name}` is outside the years 1970 to 9999")
    for name in TEXTS:
        try:
            fields[name].encode()
        except UnicodeEncodeError:
            raise NotASession(f"`{name}` holds half of a surrogate pair") from None
    if fields["group"] != group:
        raise NotASession(f"a session of group {fields['group']!r}")
    values = tuple(fields[name] for name in (*TEXT_COLUMNS, *NUMBER_COLUMNS))
    return values, [fragment.encode() for fragment in fragments]


def _is_text(raw: bytes) -> bool:
    if raw.isascii():
        return True
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True


def parse_rows(
    batches: Iterator[pa.RecordBatch], group: str, topic_id: str, count: Callable[[Counts], object]
) -> Iterator[pa.RecordBatch]:
    """Rows of ROW_SCHEMA out of records (`partition`, `offset`, `value`); unreadable ones are left out."""
    for batch in batches:
        fields, texts, ends, places, unreadable, read = [], [], [0], [], 0, 0
        checksums: list[int] = []
        days: defaultdict[str, list[int]] = defaultdict(list)
        columns = (batch.column(name).to_pylist() for name in ("partition", "offset", "value"))
        for at, (partition, offset, raw) in enumerate(zip(*columns, strict=True)):
            raw = raw or b""
            read += len(raw)
            try:
                values, data = read_row(raw, group)
            except NotASession:
                unreadable += 1
                continue
            day = _day_of(values[_OPENED_AT] // DAY_MS)
            summed = checksum_of((group, topic_id, day, partition, offset, *values), data)
            checksums.append(summed)
            days[day].append(summed)
            fields.append(values)
            texts += data
            ends.append(len(texts))
            places.append(at)
        made = _record_batch(batch, fields, texts, ends, places, checksums)
        sums = (sum(made.column(name).to_pylist()) for name in ("fragments", "bytes"))
        spans = {day: (len(each), sum(each) % MODULUS) for day, each in days.items()}
        count((made.num_rows, *sums, unreadable, read, spans))
        yield made


def parse_narrow(batches: Iterator[pa.RecordBatch], group: str, topic_id: str) -> Iterator[pa.RecordBatch]:
    """The rows of `parse_rows`, with only the columns NARROW."""
    for batch in parse_rows(batches, group, topic_id, lambda _: None):
        yield pa.RecordBatch.from_arrays([batch.column(name) for name in NARROW], schema=_NARROW_ARROW)


def parse_unreadable(batches: Iterator[pa.RecordBatch], group: str) -> Iterator[pa.RecordBatch]:
    """The records (`partition`, `offset`, `key`, `value`, `appended`) that `parse_rows` leaves out."""
    for batch in batches:
        rows = []
        for row in batch.to_pylist():
            try:
                read_row(row["value"] or b"", group)
            except NotASession as error:
                why = str(error)[:MOST_WHY].encode(errors="backslashreplace").decode()
                rows.append(
                    {"topic_partition": row["partition"], "topic_offset": row["offset"], "why": why}
                    | {name: row[name] for name in ("key", "value", "appended")}
                )
        yield pa.RecordBatch.from_pylist(rows, schema=_WHY_ARROW)


@functools.lru_cache(maxsize=1024)
def _day_of(number: int) -> str:
    return (EPOCH + timedelta(days=number)).isoformat()


def _record_batch(
    batch: pa.RecordBatch,
    fields: list[Fields],
    texts: list[bytes],
    ends: list[int],
    places: list[int],
    checksums: list[int],
) -> pa.RecordBatch:
    names = (*TEXT_COLUMNS, *NUMBER_COLUMNS)
    columns = dict(zip(names, zip(*fields, strict=True) if fields else ([] for _ in names), strict=True))
    arrays = [pa.array(columns[name], _ARROW.field(name).type) for name in names]
    kept = pa.array(places, pa.int32())
    arrays += [batch.column(name).take(kept) for name in ("partition", "offset")]
    days = [opened_at // DAY_MS for opened_at in columns["opened_at"]]
    arrays.append(pa.array(days, pa.int32()).cast(pa.date32()))
    arrays.append(pa.array(checksums, pa.int64()))
    arrays.append(pa.ListArray.from_arrays(pa.array(ends, pa.int32()), _strings(texts)))
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)


def _strings(texts: list[bytes]) -> pa.Array:
    """The texts as an array, without validating them again: they are known to be UTF-8."""
    ends = pa.array(accumulate(map(len, texts), initial=0), pa.int32())
    return pa.StringArray.from_buffers(len(texts), ends.buffers()[1], pa.py_buffer(b"".join(texts)))
