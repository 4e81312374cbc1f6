"""The pages without a browser: they escape what they show, say what is empty, and keep their files apart."""

from __future__ import annotations

import gzip
import hashlib
import re
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.simulated_cluster import SimulatedCluster
from bench.simulated_control import view_on
from services.control.http.console.assets import FOLDER, Assets
from services.control.http.console.drawing.beads import bead_of, scale_of
from services.control.http.console.rendering import HEADERS
from services.control.http.console.shown.ownership import BLOCKS, LEAST_LINES, has_wires, ownership_map
from services.control.http.console.shown.scene import owned_sentence
from services.control.live.feed.feed import EventFeed
from tests.unit.control.http.console.scenes import MEMBERS, member_row, scene_with, stream_row
from tests.unit.control.http.test_app import InMemoryRunner, app_of, app_on
from tests.unit.control.sources import Sources, small_baton

VIEWS = (
    *("/", "/console/ownership", "/console/streams/0", "/console/movements", "/console/sessions?find=k"),
    *("/console/queues", "/console/queues/mail", "/console/queues/mail/purge", "/console/groups"),
)
URL = re.compile(r'(?:href|src)="([^"]+)"')
OF_STYLES = re.compile(r'url\("?([^")]+)"?\)')
WEIGHT_MOST = 120_000
"""Bytes of a first visit, packed: page, styles, scripts and fonts."""
MAP_WEIGHT_MOST = 13_000
"""Bytes of a page with the map of 1,000 streams on 50 members, packed."""


async def browser_of(*, is_read: bool = True) -> httpx.AsyncClient:
    """A client of the small Baton's console."""
    app = await app_of(small_baton(), InMemoryRunner(), is_read=is_read)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://control")


@pytest.mark.parametrize("view", ["/", "/console/ownership", "/console/movements", "/console/groups"])
async def test_a_baton_that_no_member_has_joined_has_its_pages(view: str) -> None:
    """The group `default` always is, and its pages say what is missing."""
    app = await app_of(Sources(), InMemoryRunner())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://control") as browser:
        assert (await browser.get(view)).status_code == 200


@pytest.mark.parametrize("view", VIEWS)
async def test_a_page_loads_only_what_control_serves_and_runs_no_inline_script(view: str) -> None:
    """Its policy forbids everything else, also styles in elements; a first visit is small."""
    async with await browser_of() as browser:
        page = await browser.get(view, headers={"Accept-Encoding": "gzip"})
        assert page.status_code == 200
        assert page.headers["content-security-policy"] == HEADERS["Content-Security-Policy"]
        assert not re.search(r"<script(?![^>]*\bsrc=)|\sstyle=|<style|\son\w+=", page.text)
        assert not [url for url in URL.findall(page.text) if not url.startswith(("/", "#", "?"))]
        weight = int(page.headers["content-length"])
        wanted, loaded = {url for url in URL.findall(page.text) if "/assets/" in url}, set[str]()
        while wanted:
            url = wanted.pop()
            loaded.add(url)
            answer = await browser.get(url, headers={"Accept-Encoding": "gzip"})
            assert "immutable" in answer.headers["cache-control"]
            weight += int(answer.headers["content-length"])
            if url.endswith(".css"):  # its fonts
                wanted |= {str(answer.url.join(one).path) for one in OF_STYLES.findall(answer.text)} - loaded
        assert weight <= WEIGHT_MOST


@pytest.mark.parametrize("view", ["/", "/console/ownership", "/console/ownership?by=streams"])
async def test_the_map_of_a_thousand_streams_stays_light(view: str) -> None:
    """A bead says only what its row and its link do not."""
    feed = EventFeed()
    world = view_on(SimulatedCluster(1_000, 50, 200, feed), feed)
    await world.step()
    transport = httpx.ASGITransport(app_on(world, feed, InMemoryRunner()))

    async with httpx.AsyncClient(transport=transport, base_url="http://control") as browser:
        page = await browser.get(view, headers={"Accept-Encoding": "gzip"})

    assert page.text.count('class="bead ') == 1_000
    assert int(page.headers["content-length"]) <= MAP_WEIGHT_MOST


async def test_what_users_name_cannot_become_markup() -> None:
    """A name is shown as text wherever it stands."""
    async with await browser_of() as browser:
        page = await browser.get("/console/ownership", params={"find": '"><script>alert(1)</script>'})
        assert "<script>alert" not in page.text
        assert "&lt;script&gt;" in page.text


@pytest.mark.parametrize(
    ("path", "is_read", "status"),
    [
        ("/", False, 503),
        ("/console/streams/99", True, 404),
        ("/console/streams/x", True, 422),
        ("/console/ownership?colour=%3Cb%3E", True, 422),
        ("/console/actions/move?stream=-1&to=m1", True, 422),
        ("/console/sessions?find=%FF", True, 400),
    ],
)
async def test_a_page_that_cannot_be_shown_says_why(path: str, is_read: bool, status: int) -> None:
    """People get a page, which comes back by itself if control may; other clients get a problem document."""
    async with await browser_of(is_read=is_read) as browser:
        shown = await browser.get(path, headers={"Accept": "text/html"})
        problem = await browser.get(path)

    assert (shown.status_code, problem.status_code) == (status, status)
    assert shown.headers["content-security-policy"] == HEADERS["Content-Security-Policy"]
    assert ('http-equiv="refresh"' in shown.text) is (status == 503)
    assert problem.json()["type"].removeprefix("urn:baton:") in shown.text


def test_the_vendored_files_are_those_of_their_packages() -> None:
    """SHA256SUMS lists the digests of the published files."""
    for folder in (FOLDER / "vendor", Path(__file__).parents[5] / "tests" / "browser" / "axe"):
        for line in (folder / "SHA256SUMS").read_text().splitlines():
            digest, name = line.split()
            packed = folder / f"{name}.gz"
            content = (
                gzip.decompress(packed.read_bytes()) if packed.exists() else (folder / name).read_bytes()
            )
            assert hashlib.sha256(content).hexdigest() == digest, name


def test_an_assets_name_follows_its_content(tmp_path: Path) -> None:
    """So a browser may keep it for ever; the styles name their fonts so too."""
    for name in ("geist.woff2", "geist-mono.woff2"):
        (tmp_path / name).write_bytes(b"one")
    (tmp_path / "console.css").write_text("url(vendor/geist.woff2)")
    before = Assets(tmp_path).url("console.css")
    (tmp_path / "geist.woff2").write_bytes(b"another")
    assert Assets(tmp_path).url("console.css") != before


def test_every_stream_has_one_bead_and_members_that_own_nothing_have_a_row() -> None:
    """Also a stream whose owner has just gone from the group."""
    drawn = ownership_map(scene_with([stream_row(0), stream_row(1, None), stream_row(2, "gone")]), "lag")
    assert [line.member.id for line in drawn.lines] == list(MEMBERS)
    assert [stream for line in drawn.lines for stream, _ in line.beads] == [0]
    assert [stream for stream, _ in drawn.nobody] == [1, 2]


def test_what_is_not_known_is_empty_and_never_0() -> None:
    """A bead without a value has a step of its own."""
    row = stream_row(0)
    unknown = bead_of(
        type(row)(**{name: getattr(row, name) for name in row.__struct_fields__} | {"rate": None}),
        scale_of([row], "rate"),
        {},
    )
    assert (unknown.step, unknown.text) == (-1, "")


def test_many_streams_are_pushed_together() -> None:
    """Up to 96 wires, and fewer cells than 4,000."""
    assert has_wires(24, 3)
    assert not has_wires(1_000, 50)
    assert not has_wires(90, 50)


@given(st.integers(0, 200))
def test_the_parts_of_a_large_map_have_every_member_in_order(members: int) -> None:
    """No more parts than two in each of three columns; none is so small that it is mostly heads."""
    names = tuple(f"m{number:03}" for number in range(members))
    blocks = ownership_map(scene_with([stream_row(0, None)], names), "lag").blocks

    assert tuple(line.member.id for block in blocks for line in block) == names
    assert 1 <= len(blocks) <= BLOCKS
    assert all(len(block) >= LEAST_LINES for block in blocks[:-1])


def test_a_sentence_says_who_owns_what() -> None:
    """Shares where they are few and all is well; otherwise what is not."""
    well = scene_with([stream_row(0, "m0"), stream_row(1, "m1"), stream_row(2, "m2")])
    assert owned_sentence(well) == "3 streams on 3 members. Shares are 1, 1 and 1, as planned."
    ill = scene_with([stream_row(0, None), stream_row(1, "m1")])
    ill.members[0:1] = [member_row("m0", answers=False)]  # type: ignore[index]
    assert "1 stream is unowned" in owned_sentence(ill)
    assert "1 does not answer" in owned_sentence(ill)
    assert owned_sentence(scene_with([stream_row(0, None)], ())) == "1 stream waits for a member."
