"""How the agent's files are served; and the minified one belongs to this source, and is small."""

from __future__ import annotations

import gzip

import httpx
import pytest
from fastapi import FastAPI

from agent.minify import first_line
from services.producer.http.agent import FILES, FOLDER, StaticFile, install_agent

MAX_PACKED_BYTES = 4096
MAX_SOURCE_LINES = 300


def client(kafka: str = "kafka.example:9092", namespace: str = "") -> httpx.AsyncClient:
    """A client of an app that serves nothing else."""
    app = FastAPI()
    install_agent(app, kafka=kafka, namespace=namespace)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://producer")


def test_the_minified_agent_belongs_to_this_source() -> None:
    """Its first line has the digest of the source. After a change of the source run `make agent`."""
    first = (FOLDER / "agent.min.js").read_text().splitlines()[0]

    assert first == first_line((FOLDER / "agent.js").read_bytes())


def test_the_agent_is_small() -> None:
    """At most 4 KB compressed, and a source that can be read at once."""
    packed = gzip.compress((FOLDER / "agent.min.js").read_bytes())

    assert len(packed) <= MAX_PACKED_BYTES
    assert len((FOLDER / "agent.js").read_text().splitlines()) <= MAX_SOURCE_LINES


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.path)
async def test_a_browser_loads_each_file_once(file: StaticFile) -> None:
    """The whole file, with a type that browsers must not guess; with its tag a second request gets 304."""
    async with client() as browser:
        first = await browser.get(file.path)
        again = await browser.get(file.path, headers={"if-none-match": first.headers["etag"]})
        other = await browser.get(file.path, headers={"if-none-match": '"other"'})

    assert (first.status_code, again.status_code, other.status_code) == (200, 304, 200)
    assert first.content == (FOLDER / file.name).read_bytes().replace(b"{{command}}", b"baton sessions -f")
    assert again.content == b""
    assert first.headers["content-type"] == file.media_type
    assert first.headers["x-content-type-options"] == "nosniff"
    assert again.headers["etag"] == first.headers["etag"]


async def test_the_agent_is_compressed_if_the_client_accepts_it() -> None:
    """Otherwise it is plain; `Vary` tells caches that answers differ."""
    async with client() as browser:
        packed = await browser.get("/agent.js", headers={"accept-encoding": "gzip, br"})
        plain = await browser.get("/agent.js", headers={"accept-encoding": "identity"})

    assert packed.headers["content-encoding"] == "gzip"
    assert int(packed.headers["content-length"]) <= MAX_PACKED_BYTES
    assert "content-encoding" not in plain.headers
    assert packed.content == plain.content
    assert packed.headers["vary"] == plain.headers["vary"] == "Accept-Encoding"


async def test_pages_of_other_sites_may_run_the_agent_and_cache_it_for_an_hour() -> None:
    """Isolated sites load only resources that allow it; the try page is never cached."""
    async with client() as browser:
        agent, page = await browser.get("/agent.js"), await browser.get("/try")

    assert agent.headers["cross-origin-resource-policy"] == "cross-origin"
    assert agent.headers["cache-control"] == "public, max-age=3600"
    assert page.headers["cache-control"] == "no-cache"
    assert "default-src 'none'" in page.headers["content-security-policy"]


@pytest.mark.parametrize(
    ("kafka", "namespace", "command"),
    [
        ("127.0.0.1:9192", "", "baton sessions -f --kafka 127.0.0.1:9192"),
        (
            "localhost:9092,[::1]:9093",
            "x",
            "baton sessions -f --kafka localhost:9092,[::1]:9093 --namespace x",
        ),
        ("kafka-1.internal:9092", "x", "baton sessions -f --namespace x"),
        ("127.0.0.1:9092,10.0.0.7:9092", "", "baton sessions -f"),
    ],
)
async def test_the_try_page_names_the_ports_in_use(kafka: str, namespace: str, command: str) -> None:
    """Those of a Kafka on this machine; strangers may read the page, so it names no other address."""
    async with client(kafka, namespace) as browser:
        page = await browser.get("/try")

    assert f'<pre id="command">{command}</pre>' in page.text
    assert "9092" not in (await client(kafka, namespace).get("/try.js")).text
