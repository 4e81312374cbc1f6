"""Look-ups over HTTP: a key, a session, a stream's records; and what is said where one of them is missing."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from services.control.core.found import MOST_VALUE_CHARS, record_row
from services.control.core.report.observed import Rates
from services.control.core.report.rows import MemberRow
from services.control.live.look_ups import silence_of
from shared.model.routing import initial_table, slot_for
from tests.reference import Rec
from tests.tables import NOON, session, write_sessions
from tests.unit.control.http.test_app import InMemoryRunner, app_of
from tests.unit.control.looked_up import InMemoryOwners, InMemoryRecords, open_session
from tests.unit.control.sources import small_baton

STREAMS = 4
ID = f"{3:032x}"


def key_in(stream: int) -> str:
    """A key of that stream."""
    table = initial_table(STREAMS)
    return next(key for key in (f"k {n}/ö&" for n in range(1000)) if table.stream_for(key.encode()) == stream)


OURS, OF_THE_SILENT, OF_NOBODY = key_in(0), key_in(2), key_in(3)


@dataclass
class Baton:
    """Control over four streams: 0 is m1's, 2 is that of m2, which is silent, 3 is unowned."""

    http: httpx.AsyncClient
    owners: InMemoryOwners
    records: InMemoryRecords

    async def get(self, path: str, **query: str | int) -> dict[str, Any]:
        """The JSON of a 200."""
        response = await self.http.get(path, params=query)
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        return answer


@contextlib.asynccontextmanager
async def baton(
    lake: Path | str,
    table: str = initial_table(STREAMS).encode().decode(),
    aliases: Mapping[str, str] | None = None,
) -> AsyncIterator[Baton]:
    """A Baton whose owner m1 holds a session of OURS."""
    sources = small_baton(STREAMS)
    sources.cluster.cluster = replace(sources.cluster.cluster, stream_table=table, aliases=aliases or {})
    owners = InMemoryOwners({"m1": {OURS: open_session(OURS)}})
    log: list[tuple[bytes | None, bytes]] = [(OURS.encode(), b'{"key":"%s"}' % OURS.encode())] * 6
    records = InMemoryRecords({0: [*log, (None, b"{}"), (b"x", b"poison")]})
    app = await app_of(sources, InMemoryRunner(), lake=str(lake), owners=owners, records=records)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://control") as http:
        yield Baton(http, owners, records)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Five sessions of OURS, one of another group, and one of another key."""
    write_sessions(tmp_path, [session(n, OURS) for n in range(5)])
    write_sessions(tmp_path, [session(7, OURS, group="other"), session(8, "else")])
    return tmp_path


@pytest.mark.parametrize("query", ["key=%FF", "key=a%C3", "key=k&group=%ED%A0%80", "%FF=1&key=k"])
async def test_a_query_that_is_not_utf8_is_refused(query: str) -> None:
    """A look-up that replaces its bytes would find another key, or none."""
    async with baton("no-lake") as one:
        answer = await one.http.get(f"/keys?{query}")

        assert (answer.status_code, answer.json()["detail"]) == (400, "the query is not UTF-8")
        assert (await one.http.get("/keys?key=%C3%BC+%26")).json()["key"] == "ü &"


async def test_a_key_leads_to_its_stream_owner_and_sessions(lake: Path) -> None:
    """The open session is asked of the owner, once; the finished ones come newest first, of this group."""
    async with baton(lake) as one:
        found = await one.get("/keys", key=OURS)

    assert (found["slot"], found["stream"], found["owner"]) == (slot_for(OURS.encode()), 0, "m1")
    assert (found["answered"], found["open"]["key"], len(found["data"])) == (True, OURS, 2)
    assert [row["first_offset"] for row in found["finished"]["sessions"]] == [40, 30, 20, 10, 0]
    assert {row["data"] for row in found["finished"]["sessions"]} == {None}
    assert (found["finished"]["next"], found["finished"]["why"], found["why"]) == (None, "", "")
    assert one.owners.asked == [("m1", "http://m1", 0)]


async def test_finished_sessions_are_paged_and_may_come_with_their_fragments(lake: Path) -> None:
    """The pages add up."""
    async with baton(lake) as one:
        pages, after = [], ""
        while True:
            page = (await one.get("/keys", key=OURS, limit=2, after=after, data="true"))["finished"]
            pages.append(page["sessions"])
            if (after := page["next"]) is None:
                break
        wrong = await one.http.get("/keys", params={"key": OURS, "after": "made up"})

    assert [len(page) for page in pages] == [2, 2, 1]
    assert [row["first_offset"] for page in pages for row in page] == [40, 30, 20, 10, 0]
    assert pages[0][0]["data"] == [f'{{"key":"{OURS}"}}', f'{{"key":"{OURS}","n":4}}']
    assert wrong.status_code == 422


async def test_the_sessions_of_a_day_are_those_of_its_group(lake: Path) -> None:
    """Newest first, of all its keys, in pages, by an alias of the group too. Other days have none."""
    async with baton(lake, aliases={"live": "default"}) as one:
        first = await one.get("/sessions", day="2023-11-15", limit=4, group="live")
        rest = await one.get("/sessions", day="2023-11-15", limit=4, after=first["next"])
        none = await one.get("/sessions", day="2023-11-16")
        wrong = [
            (await one.http.get("/sessions", params=query)).status_code
            for query in (
                {},
                {"day": "today"},
                {"day": "0"},
                {"day": "2023-02-30"},
                {"day": "2023-11-15", "after": "x"},
            )
        ]
        unknown = await one.http.get("/sessions", params={"day": "2023-11-15", "group": "nobody"})

    assert [row["first_offset"] for row in first["sessions"] + rest["sessions"]] == [80, 40, 30, 20, 10, 0]
    assert (rest["next"], none["sessions"]) == (None, [])
    assert (wrong, unknown.status_code) == ([422] * 5, 404)


async def test_what_is_not_open_is_not_unknown(lake: Path) -> None:
    """The owner answered, and has nothing of the key."""
    async with baton(lake) as one:
        one.owners.held["m1"].clear()
        found = await one.get("/keys", key=OURS)

    assert (found["answered"], found["open"], found["data"], found["why"]) == (True, None, None, "")


@pytest.mark.parametrize(
    ("key", "owner", "why"),
    [
        pytest.param(OF_NOBODY, None, "nobody owns stream 3; its fragments are kept and wait", id="unowned"),
        pytest.param(OF_THE_SILENT, "m2", "m2 does not answer", id="silent"),
        pytest.param(OURS, "m1", "m1 does not answer", id="refuses"),
    ],
)
async def test_an_owner_that_cannot_be_asked_leaves_nulls_and_a_reason(
    lake: Path, key: str, owner: str | None, why: str
) -> None:
    """The finished sessions are answered all the same. A member that is known to be silent is not asked."""
    write_sessions(lake, [session(9, key)])
    async with baton(lake) as one:
        one.owners.held.clear()
        found = await one.get("/keys", key=key)

    assert (found["owner"], found["answered"], found["why"]) == (owner, False, why)
    assert (found["open"], found["data"]) == (None, None)
    assert len(found["finished"]["sessions"]) >= 1
    assert len(one.owners.asked) == (owner == "m1")


def test_a_silent_owner_that_was_heard_of_has_a_lease() -> None:
    """Whoever waits learns for how long."""
    member = MemberRow(
        id="m1",
        group="default",
        address="http://m1",
        pid=1,
        state="active",
        since=0,
        streams=[0],
        rates=Rates(),
        lease_ms=3_600,
        lease_length_ms=4_500,
        zookeeper_session=None,
        answers=False,
        paused=None,
    )

    assert silence_of(member) == (
        "m1 does not answer; its lease had 4 s left when it last did, and after its end others take its "
        "streams over"
    )


async def test_without_a_table_the_answer_says_how_to_make_one() -> None:
    """The open session is answered all the same; a session by id is not found."""
    async with baton("no-lake") as one:
        found = await one.get("/keys", key=OURS)
        by_id = await one.http.get(f"/sessions/{ID}")

    assert found["open"]["key"] == OURS
    assert found["finished"]["sessions"] is None
    assert found["finished"]["why"] == "the lake has no table of sessions yet; `baton run lake` makes it"
    assert (by_id.status_code, by_id.json()["type"]) == (404, "urn:baton:unknown-session")
    assert "baton run lake" in by_id.json()["detail"]


async def test_before_the_first_producer_no_key_has_a_stream(lake: Path) -> None:
    """There is no stream table."""
    async with baton(lake, table="") as one:
        response = await one.http.get("/keys", params={"key": OURS})

    assert response.status_code == 503
    assert "the first producer creates it" in response.json()["detail"]


async def test_a_session_by_its_id_has_its_fragments(lake: Path) -> None:
    """Of any group. An id that the lake does not have may come with its next run."""
    async with baton(lake) as one:
        found = await one.get(f"/sessions/{ID}")
        other = await one.get(f"/sessions/{7:032x}")
        missing = await one.http.get(f"/sessions/{77:032x}")
        wrong = await one.http.get("/sessions/77")

    assert (found["id"], found["key"], found["first_time"]) == (ID, OURS, NOON + 3000)
    assert found["data"] == [f'{{"key":"{OURS}"}}', f'{{"key":"{OURS}","n":3}}']
    assert other["group"] == "other"
    assert (missing.status_code, wrong.status_code) == (404, 422)
    assert "it may be open, or not added yet" in missing.json()["detail"]


async def test_a_stream_shows_what_is_open(lake: Path) -> None:
    """The oldest and the heaviest sessions, and the last record that its owner has set aside."""
    async with baton(lake) as one:
        one.owners.held["m1"]["old"] = open_session("old", 1, bytes=5)
        found = await one.get("/streams/0/open")
        silent = await one.get("/streams/2/open")
        missing = await one.http.get("/streams/9/open")

    assert [row["key"] for row in found["oldest"]] == ["old", OURS]
    assert [row["key"] for row in found["heaviest"]] == [OURS, "old"]
    assert found["last_unreadable"] == {"offset": 5, "why": "neither a marker nor a tick"}
    assert (silent["answered"], silent["oldest"], silent["open_sessions"]) == (False, None, None)
    assert missing.status_code == 404


async def test_the_newest_records_come_first_and_page_back(lake: Path) -> None:
    """`next` leads to older ones, until the log's first."""
    async with baton(lake) as one:
        pages, before = [], 99
        while True:
            page = await one.get("/streams/0/fragments", limit=3, before=before)
            pages.append([row["offset"] for row in page["fragments"]])
            if (before := page["next"]) is None:
                break
        empty = await one.get("/streams/1/fragments")
        missing = await one.http.get("/streams/4/fragments")

    assert pages == [[7, 6, 5], [4, 3, 2], [1, 0]]
    assert (empty["fragments"], empty["end"], empty["next"]) == ([], 0, None)
    assert missing.status_code == 404


async def test_the_keys_of_a_stream_weigh_by_open_sessions_and_by_newest_records(lake: Path) -> None:
    """Records that are no fragments count for no key."""
    async with baton(lake) as one:
        one.owners.held["m1"]["heavy"] = open_session("heavy", 9, bytes=1000)
        found = await one.get("/streams/0/keys")

    assert [row["key"] for row in found["heaviest"]] == ["heavy", OURS]
    size = len(b'{"key":"%s"}' % OURS.encode())
    assert found["recent"] == [{"key": OURS, "fragments": 6, "bytes": 6 * size}]
    assert found["records"] == 8


async def test_without_kafka_the_owner_still_answers(lake: Path) -> None:
    """Control may lack the right to read fragments."""
    async with baton(lake) as one:
        one.records.is_denied = True
        keys = await one.get("/streams/0/keys")
        records = await one.http.get("/streams/0/fragments")

    assert [row["key"] for row in keys["heaviest"]] == [OURS]
    assert (keys["recent"], keys["recent_why"], keys["records"]) == (None, "a right is missing", 0)
    assert (records.status_code, records.json()["detail"]) == (503, "a right is missing")


@dataclass(frozen=True)
class Read:
    """How a record is shown."""

    kind: str
    time: int | None = None
    id: str | None = None
    end: bool = False
    why: str = field(default="")


@pytest.mark.parametrize(
    ("record", "read"),
    [
        (Rec(0, 5, b"k", b'{"key":"k","time":7,"id":"i","end":true}'), Read("fragment", 7, "i", end=True)),
        (Rec(0, 5, b"k", b'{"key":"k","time":"1970-01-01T00:00:01Z"}'), Read("fragment", 1000)),
        (Rec(0, 5, b"k", b'{"key":"k"}'), Read("fragment")),
        (Rec(0, 5, None, b'{"time":9}'), Read("marker", 9)),
        (Rec(0, 5, None, b"{}"), Read("tick")),
        (Rec(0, 5, b"k", b'{"key":"l"}'), Read("unreadable", why="the record's key is not the fragment's")),
        (Rec(0, 5, b"k", b'{"key":"k","time":-1}'), Read("unreadable", why="in ms")),
        (Rec(0, 5, None, b"\xff\xfe"), Read("unreadable", why="neither a marker nor a tick")),
    ],
)
def test_a_record_is_shown_as_the_fold_reads_it(record: Rec, read: Read) -> None:
    """With the reason why it was set aside, if it was."""
    row = record_row(record.offset, record.timestamp, record.key, record.value)

    assert (row.kind, row.time, row.id, row.end) == (read.kind, read.time, read.id, read.end)
    assert read.why in row.why
    assert bool(row.why) == (row.kind == "unreadable")
    assert row.bytes == len(record.value)


def test_a_value_is_cut_and_never_fails_to_be_shown() -> None:
    """Its size is still the true one."""
    row = record_row(3, 5, b"\xff", b"\xf0\x9f" * MOST_VALUE_CHARS)

    assert (len(row.value), row.bytes, row.key) == (MOST_VALUE_CHARS, 2 * MOST_VALUE_CHARS, "\\xff")
