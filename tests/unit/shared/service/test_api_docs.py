"""`/docs` needs nothing but the service: its page, the files that the page loads, and their origin."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from services.consumer.app import create_app
from services.consumer.member.metrics import ConsumerMetrics
from shared.service.api_docs import ASSETS, FOLDER, NO_DOCS, install_docs
from tests.unit.control.http.test_app import InMemoryRunner, app_of
from tests.unit.control.sources import small_baton
from tests.unit.producer.face import Producer

URL = re.compile(r"(?:href|src|url)(?:=|: )[\"']([^\"']+)[\"']")


async def app_named(service: str) -> Any:
    """The app of the service, over nothing."""
    if service == "producer":
        return Producer(hosts="control").face.app
    if service == "control":
        return await app_of(small_baton(), InMemoryRunner())
    metrics = ConsumerMetrics(())
    return create_app(
        status=dict, plan=dict, complaints=list, metrics=metrics, reception=lambda: None, hosts=["control"]
    )


@pytest.mark.parametrize("service", ["producer", "consumer", "control"])
async def test_the_page_loads_only_what_the_service_serves(service: str) -> None:
    """So it works without the internet, and whatever prefix a proxy adds."""
    app = await app_named(service)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://control") as browser:
        page = await browser.get("/docs")
        urls = [url for url in URL.findall(page.text) if not url.startswith("data:")]
        assert (await browser.head("/docs")).status_code == 200
        loaded = {url: (await browser.get(f"/{url}")).status_code for url in urls}

    assert loaded == dict.fromkeys([*(f"docs/{name}" for name in ASSETS), "openapi.json"], 200)
    assert "://" not in page.text


@pytest.mark.parametrize("name", ASSETS)
async def test_a_browser_loads_each_file_once_and_packed(name: str) -> None:
    """It holds the bytes of the published package; with its tag a second request gets 304."""
    app = FastAPI(**NO_DOCS)
    install_docs(app)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service") as browser:
        packed = await browser.get(f"/docs/{name}", headers={"accept-encoding": "gzip"})
        plain = await browser.get(f"/docs/{name}", headers={"accept-encoding": "identity"})
        again = await browser.get(f"/docs/{name}", headers={"if-none-match": packed.headers["etag"]})
    digests = dict(line.split()[::-1] for line in (FOLDER / "SHA256SUMS").read_text().splitlines())

    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert hashlib.sha256(packed.content).hexdigest() == digests[name]
    assert packed.content == plain.content
    assert (again.status_code, again.content) == (304, b"")
