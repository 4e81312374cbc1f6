"""Control under a path of a proxy: every link, form, redirect and cookie stays below it."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from services.control.http.api.access.access import Access
from services.control.http.api.access.tokens import Tokens
from services.control.settings import ControlSettings
from shared.errors import SettingsInvalid
from shared.service.settings import load
from tests.unit.control.http.test_app import InMemoryRunner, app_of
from tests.unit.control.sources import small_baton

TOKEN = "0123456789abcdef"
ROOT = "/baton"
PAGE = {"accept": "text/html", "origin": "http://control"}
VIEWS = (
    *("/", "/console/ownership", "/console/movements", "/console/sessions", "/console/jobs"),
    *("/console/reports", "/console/queues", "/console/groups", "/console/streams/0", "/console/operations"),
    *("/console/actions/drain?member=a", "/console/actions/run?job=lake"),
)


async def browser_at(folder: Path, prefix: str) -> httpx.AsyncClient:
    """A browser behind a proxy that passes the prefix on, or ("") removes it."""
    (folder / "tokens").write_text(f"{TOKEN} operate name=ann\n")
    access = Access(Tokens(folder / "tokens"))
    await access.step()
    app = await app_of(small_baton(), InMemoryRunner(), access=access, root_path=ROOT)
    transport = httpx.ASGITransport(app)
    return httpx.AsyncClient(transport=transport, base_url=f"http://control{prefix}", headers=PAGE)


@pytest.mark.parametrize("prefix", [ROOT, ""])
async def test_a_login_stays_below_the_prefix(tmp_path: Path, prefix: str) -> None:
    """The proxy may pass it on or remove it. The cookie is for these paths alone."""
    async with await browser_at(tmp_path, prefix) as http:
        led = await http.get("/streams?group=default")
        form = await http.get("/login?next=/streams")
        logged_in = await http.post("/login", data={"token": TOKEN, "next": "/streams?group=default"})
        out = await http.post("/logout")

    assert led.headers["location"] == f"{ROOT}/login?next=/streams%3Fgroup%3Ddefault"
    assert f'action="{ROOT}/login"' in form.text
    assert f'href="{ROOT}/console/assets/' in form.text
    assert logged_in.headers["location"] == f"{ROOT}/streams?group=default"
    assert f"Path={ROOT};" in logged_in.headers["set-cookie"]
    assert out.headers["location"] == f"{ROOT}/login"
    assert f"Path={ROOT};" in out.headers["set-cookie"]


@pytest.mark.parametrize("path", VIEWS)
async def test_every_place_that_a_page_names_is_below_the_prefix(tmp_path: Path, path: str) -> None:
    """Links, forms, scripts, styles, and what the scripts ask for; those of control exist there."""
    async with await browser_at(tmp_path, ROOT) as http:
        http.headers["authorization"] = f"Bearer {TOKEN}"
        page = await http.get(path)
        places = re.findall(
            r'(?:href|src|action|formaction|hx-sse:connect|data-history)="(/[^"]*)"', page.text
        )
        files = {place for place in places if "/assets/" in place}
        found = [(await http.get(f"http://control{file}")).status_code for file in sorted(files)]

    assert page.status_code == 200
    assert places
    assert [place for place in places if not urlsplit(place).path.startswith(f"{ROOT}/")] == []
    assert set(found) == {200}


async def test_what_an_answer_leads_to_is_below_the_prefix(tmp_path: Path) -> None:
    """`Location`, `Link`, and the server of the OpenAPI document."""
    async with await browser_at(tmp_path, ROOT) as http:
        http.headers["authorization"] = f"Bearer {TOKEN}"
        run = await http.post("/jobs/lake/runs")
        refused = await http.post("/jobs/lake/runs")
        form = await http.post("/console/jobs/reports/runs", data={"group": "default"})
        document = (await http.get("/openapi.json")).json()

    assert run.headers["location"] == f"{ROOT}/runs/r0"
    assert refused.headers["link"] == f'<{ROOT}/runs/r0>; rel="related"'
    assert form.headers["location"] == f"{ROOT}/console/runs/r1"
    assert document["servers"] == [{"url": ROOT}]


@pytest.mark.parametrize("path", ["baton", "/baton/", "/", "/a b", "//x", "/console"])
def test_a_prefix_is_a_path_of_its_own(path: str) -> None:
    """Anything else is refused when control starts."""
    with pytest.raises(SettingsInvalid, match="BATON_ROOT_PATH"):
        load(ControlSettings, {"BATON_ROOT_PATH": path})
