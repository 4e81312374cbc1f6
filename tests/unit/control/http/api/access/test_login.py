"""How a browser logs in to control, what its cookie is worth, and how it logs out."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx
import pytest
from fastapi import FastAPI
from hypothesis import example, given
from hypothesis import strategies as st

from services.control.http.api.access.access import Access
from services.control.http.api.access.attempts import AT_ONCE, Attempts
from services.control.http.api.access.cookie import COOKIE, LASTS_S
from services.control.http.api.access.tokens import Tokens
from services.control.http.api.events import EVENT_STREAM
from services.control.http.api.login import HOME, MAX_FORM_BYTES, Look, login_page, own_path
from tests.unit.control.http.test_app import InMemoryRunner, app_of
from tests.unit.control.sources import small_baton

TOKEN = "0123456789abcdef"
LOOK = Look("style.css", "icon.svg")
PAGE = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@dataclass
class Browser:
    """A browser with its cookies, in front of a control whose clock stands still."""

    file: Path
    access: Access
    app: FastAPI
    http: httpx.AsyncClient
    now_s: float = 1_000_000.0

    async def log_in(self, token: str = TOKEN, **fields: str) -> httpx.Response:
        return await self.http.post("/login", data={"token": token} | fields)

    async def page(self, path: str = "/members") -> httpx.Response:
        return await self.http.get(path, headers=PAGE)


async def browser_of(file: Path, base_url: str = "http://control") -> Browser:
    """A new control with this file of tokens, and a browser without cookies."""
    browser: Browser
    access = Access(Tokens(file), attempts=Attempts(lambda: 0.0), now_s=lambda: browser.now_s)
    await access.step()
    app = await app_of(small_baton(), InMemoryRunner(), access=access)
    http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=base_url)
    browser = Browser(file, access, app, http)
    return browser


@pytest.fixture
async def browser(tmp_path: Path) -> AsyncIterator[Browser]:
    (tmp_path / "tokens").write_text(f"{TOKEN} operate name=ann\n")
    browser = await browser_of(tmp_path / "tokens")
    async with browser.http:
        yield browser


async def test_a_browser_logs_in_and_sees_its_page(browser: Browser) -> None:
    """It is led to the form, and from there to the page that it asked for; it may do what the token may."""
    led = await browser.page("/members?group=default")
    form = await browser.page(led.headers["location"])
    logged_in = await browser.log_in(**fields_in(form.text))
    there = await browser.page(logged_in.headers["location"])
    me = await browser.http.get("/me")

    assert (led.status_code, led.headers["location"]) == (303, "/login?next=/members%3Fgroup%3Ddefault")
    assert (logged_in.status_code, logged_in.headers["location"]) == (303, "/members?group=default")
    assert there.status_code == 200
    assert (me.json()["name"], me.json()["role"]) == ("ann", "operate")
    assert (await browser.http.post("/jobs/lake/runs")).status_code == 202
    assert (await browser.http.post("/jobs/maintain/runs")).status_code == 403


async def test_the_form_looks_like_the_console_before_a_login(browser: Browser) -> None:
    """What the page loads needs no token; nothing else under the console's paths is open."""
    form = await browser.page("/login")
    files = re.findall(r'(?:href|src)="([^"]+)"', form.text)
    answers = [await browser.http.get(file) for file in files]

    assert [Path(file).suffix for file in files] == [".svg", ".css"]
    assert [answer.status_code for answer in answers] == [200] * 2
    assert (await browser.http.get("/console/assets/../jobs")).status_code == 401
    assert (await browser.http.post(files[0])).status_code == 401


async def test_only_a_browser_that_wants_a_page_is_led_to_the_form(browser: Browser) -> None:
    """A machine gets 401; so does a script, which would put the form into its page."""
    for method, headers in (
        ("GET", {}),
        ("GET", {"accept": "application/json"}),
        ("GET", PAGE | {"hx-request": "true"}),
        ("POST", PAGE),
    ):
        answer = await browser.http.request(method, "/operations", headers=headers)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, 'Bearer realm="baton"')


@pytest.mark.parametrize(("scheme", "is_secure"), [("http", False), ("https", True)])
async def test_the_cookie_is_for_control_alone(browser: Browser, scheme: str, is_secure: bool) -> None:
    """Scripts cannot read it, pages of other sites cannot send it, and with TLS it never travels without."""
    secure = await browser_of(browser.file, f"{scheme}://control")
    async with secure.http:
        cookie = (await secure.log_in()).headers["set-cookie"]

    parts = {part.strip().lower() for part in cookie.split(";")[1:]}
    assert parts - {"secure"} == {"path=/", "httponly", "samesite=strict", f"max-age={LASTS_S}"}
    assert ("secure" in parts) == is_secure
    assert TOKEN not in cookie


async def test_the_cookie_survives_a_restart_of_control(browser: Browser) -> None:
    """Control stores nothing about it."""
    await browser.log_in()
    again = await browser_of(browser.file)
    async with again.http:
        again.http.cookies = browser.http.cookies
        assert (await again.page()).status_code == 200


async def test_the_cookie_ends_with_its_token_and_with_time(browser: Browser) -> None:
    """Another line for the same name does not keep it; a token that is back makes it good again."""
    await browser.log_in()
    lines = browser.file.read_text()
    statuses = []
    for text, age_s in (
        ("fedcba9876543210 operate name=ann", 0),
        (lines, 0),
        (lines, LASTS_S - 1),
        (lines, LASTS_S),
    ):
        browser.file.write_text(text)
        await browser.access.step()
        browser.now_s = 1_000_000.0 + age_s
        # without the cookie jar, which has a clock of its own
        cookie = {"cookie": f"{COOKIE}={browser.http.cookies[COOKIE]}"}
        statuses.append((await browser.http.get("/members", headers=cookie)).status_code)

    assert statuses == [401, 200, 200, 401]


async def streamed(
    browser: Browser, path: str, shown: dict[str, str], then: Callable[[], Awaitable[None]]
) -> list[bytes]:
    """The chunks of server-sent events. `then` happens after the first; the client leaves at the second."""
    chunks: list[bytes] = []
    has_left = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await has_left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if body := message.get("body"):
            chunks.append(body)
            if len(chunks) == 1:
                await then()
            elif len(chunks) == 2:
                has_left.set()

    request = browser.http.build_request("GET", path, headers=shown | {"accept": EVENT_STREAM})
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": request.url.path,
        "raw_path": request.url.raw_path,
        "query_string": request.url.query,
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
        "client": ("127.0.0.1", 1),
        "server": ("control", 80),
        "root_path": "",
    }
    async with asyncio.timeout(30):
        await browser.app(scope, receive, send)
    return chunks


@pytest.mark.parametrize("path", ["/live", "/events"])
@pytest.mark.parametrize("how", ["cookie", "bearer"])
async def test_messages_end_when_the_caller_would_not_be_let_in_any_more(
    browser: Browser, path: str, how: str
) -> None:
    """A login that has expired, a token that has left the file, another role: the page must ask again."""
    await browser.log_in()
    cookie = {"cookie": f"{COOKIE}={browser.http.cookies[COOKIE]}"}
    shown = cookie if how == "cookie" else {"authorization": f"Bearer {TOKEN}"}
    lines = browser.file.read_text()

    async def expire() -> None:
        browser.now_s += LASTS_S

    async def replace_by(text: str) -> None:
        browser.file.write_text(text)
        await browser.access.step()

    ends: list[Callable[[], Awaitable[None]]] = [
        partial(replace_by, "fedcba9876543210 view name=bob"),
        partial(replace_by, f"{TOKEN} view name=ann"),
        *([expire] if how == "cookie" else []),
    ]
    for end in ends:
        assert len(await streamed(browser, path, shown, end)) == 1
        await replace_by(lines)


async def test_messages_go_on_while_the_caller_is_let_in(browser: Browser) -> None:
    """Until the last second of a login; also when somebody guesses tokens from the same address."""
    await browser.log_in()
    cookie = {"cookie": f"{COOKIE}={browser.http.cookies[COOKIE]}"}

    async def wait() -> None:
        browser.now_s += LASTS_S - 1

    async def guess() -> None:
        for _ in range(AT_ONCE + 1):
            await browser.log_in("wrong-0123456789")

    bearer = {"authorization": f"Bearer {TOKEN}"}
    cases: list[tuple[dict[str, str], Callable[[], Awaitable[None]]]] = [(cookie, wait), (bearer, guess)]
    for shown, then in cases:
        assert len(await streamed(browser, "/live", shown, then)) == 2


async def test_a_page_says_who_one_is_and_logs_out(browser: Browser) -> None:
    """Name and role stand at its foot; only a login can be ended, a machine's token cannot."""
    await browser.log_in()
    page = await browser.page("/console/ownership")
    bearer = await browser.http.get(
        "/console/ownership", headers=PAGE | {"authorization": f"Bearer {TOKEN}", "cookie": ""}
    )
    await browser.http.post("/logout", headers={"content-type": "application/x-www-form-urlencoded"})

    assert "<span>ann, role operate</span>" in page.text
    assert '<form method="post" action="/logout">' in page.text
    assert "<span>ann, role operate</span>" in bearer.text
    assert "/logout" not in bearer.text
    assert "may do everything" not in page.text
    assert (await browser.page("/console/ownership")).status_code == 303


async def test_an_open_control_says_so_on_every_page() -> None:
    """It has no tokens, and serves more than its own machine: that is no detail of the log."""
    pages = {}
    for is_open in (True, False):
        app = await app_of(small_baton(), InMemoryRunner(), access=Access(is_open=is_open))
        local = httpx.ASGITransport(app, client=("127.0.0.1", 1))
        async with httpx.AsyncClient(transport=local, base_url="http://localhost", headers=PAGE) as http:
            pages[is_open] = [(await http.get(path)).text for path in ("/", "/console/jobs")]

    assert all("Everybody who reaches it may do everything" in page for page in pages[True])
    assert not any("may do everything" in page for page in pages[False])
    assert not any("Log out" in page or "role admin" in page for page in (*pages[True], *pages[False]))


async def test_a_browser_logs_out(browser: Browser) -> None:
    """Its cookie is gone, and the next page is the form."""
    await browser.log_in()
    answer = await browser.http.post("/logout")

    assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    assert COOKIE not in browser.http.cookies
    assert (await browser.page()).status_code == 303


@pytest.mark.parametrize("token", ["", "wrong-0123456789", TOKEN.upper(), "\u00fc" * 16, "\x00"])
async def test_a_wrong_token_shows_the_form_again(browser: Browser, token: str) -> None:
    """With what is wrong, and with the page to go on to; there is no cookie."""
    answer = await browser.log_in(token, next="/members")

    assert answer.status_code == 403
    assert "not, or no longer, in force" in answer.text
    assert fields_in(answer.text)["next"] == "/members"
    assert "set-cookie" not in answer.headers


async def test_wrong_tokens_are_slowed_down_and_others_are_not_locked_out(
    browser: Browser, caplog: pytest.LogCaptureFixture
) -> None:
    """At the form and as bearers together. A right token and a cookie pass, also from the same address."""
    await browser.log_in()
    wrong = {"authorization": "Bearer wrong-0123456789"}
    for _ in range(AT_ONCE // 2):
        assert (await browser.log_in("wrong-0123456789")).status_code == 403
        assert (await browser.http.get("/me", headers=wrong)).status_code == 401

    form = await browser.log_in("wrong-0123456789")
    bearer = await browser.http.get("/me", headers=wrong)
    # a header that anybody may send is no other address
    forged = await browser.http.get("/me", headers=wrong | {"x-forwarded-for": "192.0.2.99"})
    right = [
        await browser.http.get("/me", headers={"authorization": f"Bearer {TOKEN}"}),
        await browser.log_in(),
    ]
    other = httpx.ASGITransport(browser.app, client=("192.0.2.7", 1))
    async with httpx.AsyncClient(transport=other, base_url="http://control") as elsewhere:
        there = await elsewhere.get("/me", headers=wrong)

    assert (form.status_code, form.headers["retry-after"]) == (429, "1")
    assert (bearer.status_code, bearer.json()["type"]) == (429, "urn:baton:rate-limited")
    assert (await browser.page()).status_code == 200
    assert forged.status_code == 429
    assert [answer.status_code for answer in right] == [200, 303]
    assert there.status_code == 401
    assert [record.message for record in caplog.records] == ["token refused"] * (AT_ONCE + 1)
    assert "0123456789" not in "".join(str(vars(record)) for record in caplog.records)


@pytest.mark.parametrize(("proxies", "status"), [([], 429), (["192.0.2.0/24"], 429), (["127.0.0.1"], 401)])
async def test_forwarded_addresses_are_those_of_proxies_in_the_settings(
    proxies: list[str], status: int, tmp_path: Path
) -> None:
    """Behind a proxy of BATON_PROXIES each caller has its own limit; nobody else chooses an address."""
    (tmp_path / "tokens").write_text(f"{TOKEN} operate name=ann\n")
    access = Access(Tokens(tmp_path / "tokens"), attempts=Attempts(lambda: 0.0))
    await access.step()
    app = await app_of(small_baton(), InMemoryRunner(), access=access, proxies=proxies)
    wrong = {"authorization": "Bearer wrong-0123456789"}
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://control") as http:
        for number in range(AT_ONCE + 1):
            answer = await http.get("/me", headers=wrong | {"x-forwarded-for": f"198.51.100.{number}"})

    assert answer.status_code == status


async def test_good_tokens_are_never_slowed_down(browser: Browser) -> None:
    """A machine may call as often as it likes."""
    for _ in range(AT_ONCE + 2):
        answer = await browser.http.get("/me", headers={"authorization": f"bearer {TOKEN}"})
        assert answer.status_code == 200


async def test_until_the_file_is_read_nobody_is_told_that_a_token_is_wrong(tmp_path: Path) -> None:
    """503, so that clients try again; control is not ready, and says why."""
    browser = await browser_of(tmp_path / "missing")
    async with browser.http:
        bearer = {"authorization": f"Bearer {TOKEN}"}
        answers = [await browser.http.get("/me", headers=bearer) for _ in range(AT_ONCE + 1)]
        answers += [await browser.http.get("/me"), await browser.log_in()]
        ready = await browser.http.get("/readyz")

    assert {answer.status_code for answer in answers} == {503}
    assert (ready.status_code, "No such file" in ready.json()["detail"]) == (503, True)


async def test_a_broken_file_is_a_remark_of_a_ready_control(browser: Browser) -> None:
    """The last good tokens are in force, so it works; an operator should know."""
    browser.file.write_text("")
    await browser.access.step()

    ready = await browser.http.get("/readyz")
    assert (ready.status_code, len(ready.json()["remarks"])) == (200, 1)
    assert (await browser.log_in()).status_code == 303


async def test_without_tokens_there_is_nothing_to_log_in_to() -> None:
    """The form leads on at once, as does a login."""
    app = await app_of(small_baton(), InMemoryRunner(), access=Access())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://control") as client:
        for answer in (
            await client.get("/login", params={"next": "/members"}),
            await client.post("/login", data={"token": "x", "next": "/members"}),
        ):
            assert (answer.status_code, answer.headers["location"]) == (303, "/members")
            assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("path", ["/login", "/logout"])
async def test_a_page_of_another_site_logs_nobody_in_or_out(browser: Browser, path: str) -> None:
    """It could make a browser act under a name of its own."""
    headers = {"origin": "http://evil.example"}
    answer = await browser.http.post(path, data={"token": TOKEN}, headers=headers)

    assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)


async def test_a_form_has_a_bounded_size(browser: Browser) -> None:
    """Nobody has shown a token yet who sends it."""
    answer = await browser.log_in("x" * MAX_FORM_BYTES)

    assert answer.status_code == 413


async def test_the_form_runs_no_script_and_is_in_no_frame(browser: Browser) -> None:
    """Neither scripts nor anything of another host; no cache keeps it."""
    form = await browser.page("/login")
    policy = form.headers["content-security-policy"].split("; ")

    assert policy[0] == "default-src 'self'"
    assert "frame-ancestors 'none'" in policy
    assert "script" not in form.text
    assert form.headers["cache-control"] == "no-store"


@given(st.text() | st.text("/\\:.@%#?\t\r\nevil"))
@example("//evil.example")
@example("/\\evil.example")
@example("/\t/evil.example")
@example("https:/evil.example")
@example("javascript:alert(1)")
def test_a_login_never_leads_to_another_site(place: str) -> None:
    """Whatever the link said; nor can it add a header or a second line to one."""
    here = own_path(place)
    # as browsers read it: without tabs and line ends, and with `/` for a backslash
    read = here.translate({ord(blank): None for blank in "\t\r\n"}).replace("\\", "/")

    assert urlsplit(urljoin("http://control/login", read)).netloc == "control"
    assert here.isascii()
    assert here.isprintable()
    assert own_path(here) == here
    assert own_path(HOME) == HOME


@given(st.text(), st.text())
def test_the_form_shows_text_as_text(place: str, fault: str) -> None:
    """Nothing in a link or in an answer becomes markup."""
    page = bytes(login_page(f"/{place}", fault, look=LOOK).body).decode()

    assert fields_in(page) == {"next": own_path(f"/{place}")}
    assert page.count("<") == bytes(login_page("/", fault and "x", look=LOOK).body).decode().count("<")


def fields_in(page: str) -> dict[str, str]:
    """The hidden fields of a page's forms."""
    found: dict[str, str] = {}

    class Fields(HTMLParser):
        def handle_starttag(self, tag: str, attrs: Any) -> None:
            given = dict(attrs)
            if given.get("type") == "hidden":
                found[given["name"]] = given["value"]

    Fields().feed(page)
    return found
