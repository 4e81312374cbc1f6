"""What a request asks of a table is read strictly, and every fault is named."""

from __future__ import annotations

import pytest

from services.control.tables.query import Column, QueryInvalid, parse_query, parse_value

TABLE = [
    Column(name="key", type="string"),
    Column(name="n", type="bigint"),
    Column(name="data", type="array<string>"),
]


def test_every_fault_is_named_with_what_exists() -> None:
    """All at once, so that the next request can be right."""
    with pytest.raises(QueryInvalid) as caught:
        parse_query(
            TABLE,
            [("kee", "x"), ("n", "many"), ("n.gt", "1"), ("n.gt", "2"), ("data", "x"), ("key.like", "x")],
            columns="key,nope",
            sort="-data",
        )

    faults = dict(caught.value.faults)
    assert "key, n, data" in faults["kee"]
    assert "'nope'" in faults["columns"]
    assert faults.keys() == {"kee", "n", "n.gt", "data", "key.like", "columns", "sort"}


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("bigint", "9223372036854775807", 2**63 - 1),
        ("bigint", "2023-11-15T12:00:00Z", 1_700_049_600_000),
        ("timestamp", "2023-11-15T13:00:00.5+01:00", 1_700_049_600_500_000),
        ("date", "2023-11-15", "2023-11-15"),
        ("double", "1e3", 1000.0),
        ("boolean", "true", True),
    ],
)
def test_a_value_has_its_columns_type(kind: str, text: str, value: object) -> None:
    """A number of ms may be spelled as a time."""
    assert parse_value(Column(name="c", type=kind), "eq", text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *(("bigint", text) for text in ("9223372036854775808", "1.0", "1_0", "٣", "", "0x1")),
        *(("date", text) for text in ("2023-02-30", "today", "2023-11-15T00:00:00Z")),
        *(("timestamp", text) for text in ("2023-11-15", "2023-11-15T12:00:00", "1700000000000")),
        *(("double", text) for text in ("nan", "inf", "", "one")),
        *(("boolean", text) for text in ("1", "True")),
        ("string", "a\0b"),
    ],
)
def test_a_malformed_value_is_refused(kind: str, text: str) -> None:
    """Before it reaches the engine."""
    with pytest.raises(ValueError, match=r"not|neither"):
        parse_value(Column(name="c", type=kind), "eq", text)
