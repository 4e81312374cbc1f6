"""The audit's three steps as they run in Spark's Python workers: Arrow batches in, Arrow batches out.

Reads the records of fragments, reads delivered sessions, and judges the sorted rows of many keys in turn.
Rows are small, because a digest of 16 bytes replaces each fragment: a million of them sort in memory.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from services.control.spark.delivered import NotASession, read_session
from services.control.spark.fold import Line
from services.control.spark.reading import read_record
from services.control.spark.verdict import Delivered, Finding, KeyVerdict, StreamFacts, Tally
from shared.model.group import GroupSettings

DIGEST_BYTES = 16
FRAGMENT_SCHEMA = (
    "stream int, offset long, appended long, kind string, key string, time long, t long, end boolean, "
    "id string, size long, digest binary"
)
"""A record. `time` is a marker's; `t` is the effective time of a fragment (ms), null for other records."""
DELIVERED_SCHEMA = "stream int, key string, session string, digest binary"
"""A delivered session: its fields as JSON, its fault if any, and its fragments' digests."""
VERDICT_SCHEMA = "kind string, n long, id string, stream int, key string, detail string"
"""A finding (n = 1), or a sum over many keys."""

_FRAGMENT = pa.schema(
    [
        *(("stream", pa.int32()), ("offset", pa.int64()), ("appended", pa.int64()), ("kind", pa.string())),
        *(("key", pa.string()), ("time", pa.int64()), ("t", pa.int64()), ("end", pa.bool_())),
        *(("id", pa.string()), ("size", pa.int64()), ("digest", pa.binary())),
    ]
)
_DELIVERED = pa.schema(
    [("stream", pa.int32()), ("key", pa.string()), ("session", pa.string()), ("digest", pa.binary())]
)
_VERDICT = pa.schema(
    [
        *(("kind", pa.string()), ("n", pa.int64()), ("id", pa.string()), ("stream", pa.int32())),
        *(("key", pa.string()), ("detail", pa.string())),
    ]
)


def digest(fragment: bytes) -> bytes:
    """A digest of a fragment's bytes, 16 bytes long."""
    return hashlib.blake2b(fragment, digest_size=DIGEST_BYTES).digest()


def read_fragment_rows(batches: Iterator[pa.RecordBatch], future_ms: int) -> Iterator[pa.RecordBatch]:
    """Records (stream, offset, appended, key, value) as rows of FRAGMENT_SCHEMA."""
    for batch in batches:
        stream, offset, appended, keys, values = (column.to_pylist() for column in batch.columns)
        readings = [read_record(key, value) for key, value in zip(keys, values, strict=True)]
        is_fragment = [reading.kind == "fragment" for reading in readings]
        t = [
            (a if reading.time is None else min(reading.time, a + future_ms)) if is_one else None
            for reading, a, is_one in zip(readings, appended, is_fragment, strict=True)
        ]
        columns = (
            *(stream, offset, appended, [reading.kind for reading in readings]),
            *([reading.key for reading in readings], [reading.time for reading in readings], t),
            *([reading.end for reading in readings], [reading.id for reading in readings]),
            [len(value or b"") for value in values],
            [digest(value) if is_one else None for value, is_one in zip(values, is_fragment, strict=True)],
        )
        yield _batch(columns, _FRAGMENT)


def read_delivered_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Records (key, value) of the sessions topic as rows of DELIVERED_SCHEMA."""
    for batch in batches:
        rows = [
            _read_delivered(key.as_py(), value.as_py())
            for key, value in zip(*batch.columns, strict=True)  # one at a time: each may have 2 MB
        ]
        yield _batch(tuple(zip(*rows, strict=True)) if rows else ((),) * 4, _DELIVERED)


def _read_delivered(key: bytes | None, value: bytes | None) -> tuple[int, str, str, bytes]:
    try:
        fields, fragments = read_session(value or b"")
    except NotASession as error:
        return -1, "", json.dumps({"why": str(error)}), b""
    has_own_key = fields["key"].encode(errors="surrogatepass") == key
    session = json.dumps({"fields": fields, "has_own_key": has_own_key})
    stream = fields["stream"] if 0 <= fields["stream"] < 2**31 else -1
    digests = b"".join(digest(fragment.encode()) for fragment in fragments)
    return stream, fields["key"].encode(errors="replace").decode(), session, digests


def judge_rows(
    batches: Iterator[pa.RecordBatch], group: str, settings: GroupSettings, facts: Mapping[int, StreamFacts]
) -> Iterator[pa.RecordBatch]:
    """Rows sorted by stream, key, offset (delivered sessions, which have none, first) as verdicts."""
    tally = Tally()
    delivered = 0
    now: tuple[int, str] | None = None
    verdict: KeyVerdict | None = None
    for batch in batches:
        findings: list[Finding] = []
        for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            stream, key, offset, appended, t, w, a, end, name, size, digests, session = row
            if verdict is None or now != (stream, key):
                if verdict is not None:
                    findings += verdict.finish()
                now = stream, key
                known = facts.get(stream) or StreamFacts(stream=stream, position=0)
                verdict = KeyVerdict(group, key, settings, known, tally)
            if offset is None:
                delivered += 1
                findings += verdict.deliver(_delivered(session, digests))
            else:
                findings += verdict.feed(Line(offset, appended, t, w, a, end, name, size, digests))
        yield _findings_batch(findings)
    if verdict is not None:
        yield _findings_batch(verdict.finish())
    sums = asdict(tally) | {"delivered": delivered}
    yield _batch((list(sums), list(sums.values()), *([None] * len(sums) for _ in range(4))), _VERDICT)


def _delivered(session: str, digests: bytes) -> Delivered:
    known: dict[str, Any] = json.loads(session)
    cuts = range(0, len(digests), DIGEST_BYTES)
    return Delivered(
        fields=known.get("fields"),
        digests=[digests[cut : cut + DIGEST_BYTES] for cut in cuts],
        has_own_key=known.get("has_own_key", False),
        why=known.get("why", ""),
    )


def _findings_batch(findings: list[Finding]) -> pa.RecordBatch:
    kinds, *rest = zip(*findings, strict=True) if findings else ((),) * 5
    return _batch((kinds, (1,) * len(findings), *rest), _VERDICT)


def _batch(columns: Any, schema: pa.Schema) -> pa.RecordBatch:
    arrays = [pa.array(list(column), type=field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
