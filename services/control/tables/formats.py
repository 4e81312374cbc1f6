"""Rows of a table as JSON, CSV and Parquet.

Pure. Integers stay exact and times stay as they are stored: integers of ms remain integers, timestamps become
RFC 3339. In JSON, binary values are base64 and numbers that are not finite are null; in CSV, lists are JSON.
"""

from __future__ import annotations

import io
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet

JSON: Final = "application/json"
CSV: Final = "text/csv; charset=utf-8"
PARQUET: Final = "application/vnd.apache.parquet"
ROWS_AT_ONCE = 200
"""Encoded in one call, which lets no other thread run."""


def encode(rows: pa.Table, kind: str, **more: Any) -> bytes:
    """The rows in the format of this content type; `more`: fields of the JSON object beside `rows`."""
    rows = rows.cast(pa.schema([pa.field(one.name, _plain(one.type), one.nullable) for one in rows.schema]))
    if kind == CSV:
        return _encode_csv(rows)
    if kind == PARQUET:
        sink = io.BytesIO()
        pa_parquet.write_table(rows, sink, compression="zstd")
        return sink.getvalue()
    parts = [
        msgspec.json.encode(batch.to_pylist())[1:-1] for batch in rows.to_batches(max_chunksize=ROWS_AT_ONCE)
    ]
    fields = msgspec.json.encode(more)[1:-1]
    return b'{"rows":[%b]%b%b}' % (b",".join(filter(None, parts)), b"," if fields else b"", fields)


def _encode_csv(rows: pa.Table) -> bytes:
    columns = []
    for column in rows.columns:
        if pa.types.is_nested(column.type) or pa.types.is_binary(column.type):
            texts = [
                None if value is None else msgspec.json.encode(value).decode().strip('"')
                for value in column.to_pylist()
            ]
            columns.append(pa.array(texts, pa.string()))
        else:
            columns.append(column)
    sink = io.BytesIO()
    pa_csv.write_csv(pa.table(columns, names=rows.column_names), sink)
    return sink.getvalue()


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type without the engine's own layouts of text, which CSV does not know."""
    if kind == pa.string_view():
        return pa.string()
    if kind == pa.binary_view():
        return pa.binary()
    if pa.types.is_list(kind):
        return pa.list_(pa.field(kind.value_field.name, _plain(kind.value_type), kind.value_field.nullable))
    return kind
