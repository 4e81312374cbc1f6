"""What the importer reads from a line, format by format."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.importing.parsing.formats import Format, parser_for
from cli.importing.parsing.rows import Fields, LineUnreadable, Row
from cli.importing.parsing.times import TimeUnit, TimeUnreadable, time_reader
from shared.errors import InvalidInput

COMMON = b'127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /a.gif?x=1 HTTP/1.0" 200 2326'
COMBINED = COMMON + b' "http://e.org/\\"q\\"" "Mozilla/4.08 [en]"'


def rows(form: Format, fields: Fields, lines: Iterable[bytes]) -> list[Row]:
    parser = parser_for(form, fields)
    return [row for line in lines if (row := parser.feed(line)) is not None]


ACCESS = Fields(key="host", time="time")
KEYED = Fields(key="k", time="t")


@pytest.mark.parametrize("line", [COMMON, COMBINED])
def test_an_access_log_line_becomes_a_row(line: bytes) -> None:
    """The common and the combined format give the same fields; the path is a separate one."""
    (row,) = rows("access-log", Fields(key="user", time="time"), [line])

    assert (row.key, row.time_ms, row.end) == ("frank", 971_211_336_000, False)
    data = json.loads(row.data)
    assert (data["host"], data["method"], data["path"]) == ("127.0.0.1", "GET", "/a.gif?x=1")
    assert (data["status"], data["bytes"]) == (200, 2326)


def test_an_invalid_http_request_is_kept_as_text() -> None:
    """Scanners send anything; the line is still imported."""
    (row,) = rows("access-log", ACCESS, [rb'h - - [10/Oct/2000:13:55:36 -0700] "\x16\x03" 400 -'])

    data = json.loads(row.data)
    assert data["request"] == r"\x16\x03"
    assert data["bytes"] is None
    assert "path" not in data


def test_a_tsv_row_is_an_object_of_its_columns() -> None:
    """The header names the columns; values remain text."""
    (row,) = rows("tsv", Fields(key="host", time="time"), [b"host\ttime\turl", b"h\t807256800\t/a"])

    assert (row.key, row.time_ms) == ("h", 807_256_800_000)
    assert json.loads(row.data) == {"host": "h", "time": "807256800", "url": "/a"}


def test_text_that_is_not_utf8_is_read_as_latin1() -> None:
    """Old logs are Latin-1; UTF-8 is still read as UTF-8."""
    found = rows("tsv", KEYED, [b"k\tt", b"\xe9t\xe9\t1", "été\t1".encode()])

    assert [row.key for row in found] == ["été", "été"]


def test_a_json_line_is_kept_unchanged_and_read_by_dotted_paths() -> None:
    """The row has the line's bytes; numbers are valid keys."""
    line = b'{"u": {"id": 7},  "at": "1970-01-01T00:00:01Z", "last": true}'

    (row,) = rows("ndjson", Fields(key="u.id", time="at", end="last"), [b" " + line + b" "])

    assert row == Row("7", 1000, True, line)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"k\tt\nonly one", "columns"),
        (b"k,t\nonly one", "columns"),
        (b'k,t\na,"1', "malformed"),
        (b"{", "malformed"),
        (b"[1]", "malformed"),
        (b'{"k":"\xff","t":1}', "encoding"),
        (b'{"t":1}', "key"),
        (b'{"k":"","t":1}', "key"),
        (b'{"k":true,"t":1}', "key"),
        (b'{"k":"a"}', "time"),
        (b'{"k":"a","t":true}', "time"),
        (b'{"k":"a","t":-1}', "time"),
        (b'{"k":"a","t":1e300}', "time"),
        (b'{"k":"a","t":"soon"}', "time"),
        (b"[" * 5000, "malformed"),
        (b"k\tt\na\rb\t1", "line-end"),
        (b"k,t\na\rb,1", "line-end"),
        *(
            (b"k,t\n%b,1" % null, "key")
            for null in (b"NULL", rb"\N", b"nan", b"undefined", b"-", b"  ", b"None")
        ),
        (b'{"k":"-","t":1}', "key"),
        (b'{"k":" ","t":1}', "key"),
    ],
)
def test_an_unusable_line_has_a_reason(line: bytes, reason: str) -> None:
    """One word to group by."""
    form: Format = "tsv" if b"k\tt" in line else "csv" if b"k,t" in line else "ndjson"

    with pytest.raises(LineUnreadable) as caught:
        rows(form, KEYED, line.split(b"\n"))

    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("value", "ends"), [("true", True), ("1", True), ("Yes", True), ("0", False), ("", False)]
)
def test_the_end_field_accepts_the_usual_spellings_of_true(value: str, ends: bool) -> None:
    """In text formats `true`, `1` and `yes` end a session."""
    fields = Fields(key="k", time="t", end="e")

    (row,) = rows("tsv", fields, [b"k\tt\te", f"a\t1\t{value}".encode()])

    assert row.end is ends


@pytest.mark.parametrize(
    ("form", "fields", "header", "error"),
    [
        ("access-log", Fields(key="session", time="time"), COMMON, "no field 'session'; it has host, "),
        ("tsv", Fields(key="hots", time="time"), b"host\ttime", "no column 'hots'; it has host, time"),
        ("csv", KEYED, b"k,t,t", "twice"),
        ("csv", KEYED, b"k,t\ra,1\r", "carriage return"),
        ("w3c", KEYED, b"#Fields: date time c-ip", "names no 'k'; it has date"),
        ("csv", Fields(key="k", time="t", zone="Mars/Olympus"), b"k,t", "no time zone 'Mars/Olympus'"),
    ],
)
def test_a_log_without_the_fields_is_rejected(
    form: Format, fields: Fields, header: bytes, error: str
) -> None:
    """As a whole, with the names that it has; of a repeated one it would be unclear which counts."""
    with pytest.raises(InvalidInput, match=error):
        rows(form, fields, [header])


@pytest.mark.parametrize(
    ("text", "unit", "time_ms"),
    [
        ("807256800", "auto", 807_256_800_000),
        ("807256800.9999", "s", 807_256_800_999),
        ("1741000313268", "auto", 1_741_000_313_268),
        ("5", "ms", 5),
        ("1.7e9", "auto", 1_700_000_000_000),
        ("10/Oct/2000:13:55:36 -0700", "auto", 971_211_336_000),
        ("[31/Dec/2016:23:59:60 +0000]", "clf", 1_483_228_800_000),
        ("2000-10-10T13:55:36.5-07:00", "auto", 971_211_336_500),
        ("2000-10-10 20:55:36 UTC", "auto", 971_211_336_000),
        ("2000-10-10 20:55:36,5+00", "auto", 971_211_336_500),
        ("2000-10-10T20:55+0000", "auto", 971_211_300_000),
        ("9/oct/2000:20:55:36.25 +00:00", "auto", 971_124_936_250),
        ("1762790406789012", "auto", 1_762_790_406_789),
        ("1762790406789012345", "auto", 1_762_790_406_789),
        ("1762790406.9999999999", "auto", 1_762_790_406_999),
        ("999", "us", 0),
        ("1999999", "ns", 1),
    ],
)
def test_times_of_all_forms_are_exact(text: str, unit: TimeUnit, time_ms: int) -> None:
    """Fractions are rounded down to ms, without floats."""
    assert time_reader(unit)(text) == time_ms


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("", "auto"),
        ("-1", "s"),
        ("nan", "auto"),
        ("9e99", "s"),
        ("9e99", "auto"),
        ("999999999999999", "s"),
        ("30/Feb/2000:00:00:00 +0000", "clf"),
        ("10/Foo/2000:00:00:00 +0000", "clf"),
        ("10/Oct/2000:25:00:00 +0000", "clf"),
        ("10/Oct/2000:00:00:00 +9900", "clf"),
        ("1741000313268", "rfc3339"),
        ("2000-10-10", "auto"),
        ("2000-10-10 13:55:36", "auto"),
        ("10/Oct/2000:13:55:36", "clf"),
        ("2000-02-30 13:55:36 UTC", "auto"),
        ("٣", "s"),
    ],
)
def test_unreadable_times_are_rejected(text: str, unit: TimeUnit) -> None:
    """They are never guessed, and raise no other exception."""
    with pytest.raises(TimeUnreadable):
        time_reader(unit)(text)


@pytest.mark.parametrize(
    ("text", "zone", "pattern", "time_ms"),
    [
        ("2025-07-01 02:00:00", "Europe/Berlin", None, 1_751_328_000_000),
        ("01/Jul/2025:02:00:00", "+02:00", None, 1_751_328_000_000),
        ("2025-07-01 00:00:00Z", "Europe/Berlin", None, 1_751_328_000_000),
        ("1.7.2025 02.00", "Europe/Berlin", "%d.%m.%Y %H.%M", 1_751_328_000_000),
        ("1.7.2025 02.00 +0200", None, "%d.%m.%Y %H.%M %z", 1_751_328_000_000),
    ],
)
def test_a_time_without_a_zone_is_in_the_one_that_is_given(
    text: str, zone: str | None, pattern: str | None, time_ms: int
) -> None:
    """A time that names its zone is in that one."""
    assert time_reader("auto", zone, pattern)(text) == time_ms


def test_a_float_of_an_ndjson_line_is_read_as_it_is_written() -> None:
    """As a float of 64 bits, this one would be rounded up to the next second."""
    (row,) = rows("ndjson", KEYED, [b'{"k": 12345678901234567890123456, "t": 1762790406.9999999}'])

    assert (row.key, row.time_ms) == ("12345678901234567890123456", 1_762_790_406_999)


def test_the_keys_that_stand_for_no_value_can_be_named() -> None:
    """Then the usual ones of text formats are keys, but a blank one and `-` never are."""
    fields = Fields(key="k", time="t", nulls=("anonymous",))

    (row,) = rows("csv", fields, [b"k,t", b"nan,1"])

    assert row.key == "nan"
    for key in (b"Anonymous", b"-", b""):
        with pytest.raises(LineUnreadable, match="stands for no value"):
            rows("csv", fields, [b"k,t", key + b",1"])


def test_empty_columns_at_the_end_are_none() -> None:
    """Spreadsheets write them; one with a value is a fault."""
    found = rows("csv", KEYED, [b"k,t,,", b"a,1,,", b"a,2", b"a,3,,,"])

    assert [json.loads(row.data)["t"] for row in found] == ["1", "2", "3"]
    with pytest.raises(LineUnreadable, match="3 columns"):
        rows("csv", KEYED, [b"k,t", b"a,1,x"])


def test_a_w3c_log_names_its_fields_and_may_name_others_later() -> None:
    """IIS does at each start; date and time are UTC, and CloudFront parts values by tabs."""
    lines = [
        b"#Software: IIS",
        b"#Fields: date time c-ip cs-uri-stem",
        b"2000-10-10 20:55:36 192.0.2.1 /a",
        b"#Fields: date time cs-uri-stem c-ip",
        b"2000-10-10\t20:55:37\t/b c\t192.0.2.1",
    ]

    found = rows("w3c", Fields(key="c-ip", time="datetime"), lines)

    assert [(row.key, row.time_ms) for row in found] == [
        ("192.0.2.1", 971_211_336_000 + n * 1000) for n in (0, 1)
    ]
    assert [json.loads(row.data)["cs-uri-stem"] for row in found] == ["/a", "/b c"]


@given(raw=st.binary(max_size=200), form=st.sampled_from(["access-log", "tsv", "csv", "ndjson"]))
def test_no_line_crashes_a_parser(raw: bytes, form: Format) -> None:
    """Any bytes give a row, no row, or LineUnreadable."""
    fields = ACCESS if form == "access-log" else KEYED
    parser = parser_for(form, fields)
    if form in ("tsv", "csv"):
        parser.feed(b"k\tt" if form == "tsv" else b"k,t")

    with contextlib.suppress(LineUnreadable):
        row = parser.feed(raw.replace(b"\n", b" "))
        assert row is None or json.loads(row.data)
