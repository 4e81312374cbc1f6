"""The console's view of sessions: the life line, fragments, and the pages as they are served."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from services.control.core.events.ownership_history import OwnerRow
from services.control.http.console.shown.sessions import fragment_lines, life_line, moved_words, moves_of
from shared.model.open_sessions import MOST_FRAGMENTS
from tests.tables import session, write_sessions
from tests.unit.control.http.api.test_look_ups import OF_NOBODY, OF_THE_SILENT, OURS, Baton, baton
from tests.unit.control.looked_up import NOON, open_session

MINUTE = 60_000
SCRIPT = "<script>alert(1)</script>"


def owner(epoch: int, since: int) -> OwnerRow:
    """An owner since then, after a pause of 43 ms."""
    return OwnerRow(owner=f"m{epoch}", epoch=epoch, since=since, why="", warm=True, pause_ms=43.0)


def fragment(minute: int | None) -> str:
    """A fragment as posted, at that minute after noon."""
    time = {} if minute is None else {"time": NOON + minute * MINUTE}
    return msgspec.json.encode({"key": "k"} | time).decode()


def test_a_life_line_reaches_from_the_first_fragment_to_the_end_by_silence() -> None:
    """Fragments, moves and now stand in proportion; a move names the new owner."""
    row = open_session("k", silent_after=NOON + 40 * MINUTE, last_time=NOON + 10 * MINUTE)
    owners = [owner(3, NOON + 8 * MINUTE), owner(2, NOON - MINUTE)]

    line = life_line(row, [fragment(0), fragment(4), fragment(10)], owners, NOON + 20 * MINUTE)

    assert line.fragments == [0.0, 10.0, 25.0]
    assert line.moves == [(20.0, "m3")]
    assert (line.last, line.now) == (25.0, 50.0)
    assert (line.begin, line.end) == ("12:00:00", "12:40:00")


@pytest.mark.parametrize("now_ms", [NOON - 1, NOON + 40 * MINUTE + 1])
def test_a_life_elsewhere_in_time_has_no_now(now_ms: int) -> None:
    """An import of an old log is folded by its own times. Fragments without a time leave first and last."""
    row = open_session("k", silent_after=NOON + 40 * MINUTE, last_time=NOON + 10 * MINUTE)

    line = life_line(row, [fragment(None)] * 3, [], now_ms)

    assert (line.now, line.fragments) == (None, [0.0, 25.0])


def test_moves_are_the_owners_after_the_first_fragment() -> None:
    """The first owner of all took the stream from nobody."""
    row = open_session("k")
    before, first, later = owner(2, NOON), owner(1, NOON + 5), owner(4, NOON + 5)

    assert moves_of(row, [later, before, first]) == [later]
    assert moved_words([], NOON) == ("never", "")
    assert moved_words([later], NOON) == ("once", "12:00:00, 43 ms")
    assert [moved_words([later] * n, NOON)[0] for n in (2, 3)] == ["twice", "3 times"]


def test_fragments_are_numbered_from_the_sessions_first() -> None:
    """The last ones are shown; a time and a distance only where they are known."""
    data = [fragment(n) for n in range(MOST_FRAGMENTS)] + [fragment(None), "not JSON", fragment(3)]

    lines = fragment_lines(data, 500, NOON)

    assert len(lines) == MOST_FRAGMENTS
    assert (lines[0].number, lines[-1].number) == (401, 500)
    assert (lines[0].time, lines[0].after) == ("12:03:00", "")
    assert lines[1].after == "60.0 s"
    assert [(line.time, line.after) for line in lines[-3:]] == [("", ""), ("", ""), ("12:03:00", "")]


async def page(one: Baton, **query: str | int) -> str:
    """The view of sessions. Nothing in it is a script or a style of its own."""
    response = await one.http.get("/console/sessions", params=query)
    assert response.status_code == 200, response.text
    assert re.findall(r"<script(?![^>]* src=)|<style|\sstyle=|\son\w+=", response.text) == []
    return response.text


def text_of(html: str) -> str:
    """What a person reads of a page, in one line."""
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


async def test_a_key_shows_its_chain_its_open_session_and_its_finished_ones(tmp_path: Path) -> None:
    """With pages of finished sessions that lead on."""
    write_sessions(tmp_path, [session(n, OURS, reason="limit") for n in range(22)])
    async with baton(tmp_path) as one:
        shown = await page(one, find=OURS)
        (older,) = re.findall(r'href="([^"]*)">Older ones', shown)
        rest = (await one.http.get(older.replace("&amp;", "&"))).text

    assert "stream 0 owner m1" in text_of(shown)
    assert "Open now" in text_of(shown)
    assert text_of(shown).count("a limit") == 20
    assert text_of(rest).count("a limit") == 2
    assert text_of(rest).count("Open now") == 1


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        (OF_NOBODY, "nobody owns stream 3; its fragments are kept and wait."),
        (OF_THE_SILENT, "It is not known whether a session of this key is open: m2 does not answer."),
    ],
)
async def test_what_is_not_known_is_said(key: str, sentence: str) -> None:
    """Also how a lake without a table gets one."""
    async with baton("no-lake") as one:
        shown = text_of(await page(one, find=key))

    assert sentence in shown
    assert "Not known: the lake has no table of sessions yet; baton run lake makes it." in shown


async def test_an_id_shows_its_session_and_other_hex_is_a_key(tmp_path: Path) -> None:
    """Visitors' ids often look like those of sessions."""
    write_sessions(tmp_path, [session(3, "ann", data=[SCRIPT, "{}"])])
    async with baton(tmp_path) as one:
        by_id = await page(one, find=f"{3:032x}")
        as_key = await page(one, find=f"{4:032x}")

    assert "Lasted" in text_of(by_id)
    assert "&lt;script&gt;alert(1)" in by_id
    assert f"key {4:032x} slot" in text_of(as_key)


async def test_a_stream_shows_its_keys_and_pages_through_its_records() -> None:
    """Unreadable records say why; nothing that was posted becomes markup."""
    async with baton("no-lake") as one:
        one.records.logs[0] += [(b"s", SCRIPT.encode())] * 20
        newest = await page(one, stream=0)
        (older,) = re.findall(r'href="([^"]*)">Older ones', newest)
        rest = text_of((await one.http.get(older.replace("&amp;", "&"))).text)

    assert "Heaviest keys" in newest
    assert "&lt;script&gt;alert(1)" in newest
    assert text_of(newest).count("unreadable") == 20
    assert rest.count("fragment " + OURS.replace("&", "&amp;")) == 6
    assert "tick" in rest


async def test_a_log_that_cannot_be_read_or_is_empty_is_said() -> None:
    """What the owner answers is shown all the same."""
    async with baton("no-lake") as one:
        empty = text_of(await page(one, stream=1))
        one.records.is_denied = True
        denied = text_of(await page(one, stream=0))

    assert "The log is empty." in empty
    assert "The log cannot be read: a right is missing." in denied
    assert "Not known: a right is missing." in denied
    assert OURS.replace("&", "&amp;") in denied


async def test_what_does_not_exist_is_said_on_the_page() -> None:
    """A stream, and any key before the first producer."""
    async with baton("no-lake") as one:
        stream = text_of(await page(one, stream=99))
    async with baton("no-lake", table="") as one:
        key = text_of(await page(one, find=OURS))

    assert "Not found: there is no stream 99; there are 0 … 3." in stream
    assert "Not found: there is no stream table yet; the first producer creates it." in key


async def test_the_page_of_a_stream_shows_its_oldest_sessions_and_what_it_set_aside() -> None:
    """With a link to the record; an owner that does not answer is named."""
    async with baton("no-lake") as one:
        shown = (await one.http.get("/console/streams/0")).text
        silent = text_of((await one.http.get("/console/streams/2")).text)

    assert OURS.replace("&", "&amp;") in shown
    assert "at offset 5 : neither a marker nor a tick" in text_of(shown)
    assert "stream=0&amp;before=6" in shown
    assert "Not known: m2 does not answer." in silent


async def test_keys_of_any_text_lead_back_to_themselves() -> None:
    """Links quote them."""
    strange = 'a&find=b#c?"<é> %2F+'
    async with baton("no-lake") as one:
        one.owners.held["m1"] = {strange: open_session(strange)}
        shown = await page(one, stream=0)
        (link,) = re.findall(r'href="(/console/sessions[^"]*find=[^"]*)"', shown)[:1]
        found = (await one.http.get(link.replace("&amp;", "&"))).text

    (value,) = re.findall(r'name="find" value="([^"]*)"', found)
    assert (
        value.replace("&lt;", "<").replace("&gt;", ">").replace("&#34;", '"').replace("&amp;", "&") == strange
    )
