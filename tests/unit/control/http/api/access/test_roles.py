"""Every route of control and every role: who may do what, with tokens, without them, and read-only."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts

from services.control.http.api.access.access import Access
from services.control.http.api.access.caller import ANYBODY, ROLES, Caller, Role
from services.control.http.api.access.needs import ACTS, FILES, OPEN, needed_role
from services.control.http.api.access.tokens import Tokens
from shared.service.http import PROBLEM
from tests.unit.control.http.test_app import InMemoryRunner, app_of
from tests.unit.control.sources import small_baton

TOKENS = {role: f"{role}-0123456789abcdef" for role in ROLES}
FILE = "".join(f"{token} {role} name={role}-er\n" for role, token in TOKENS.items())
JOB_NAMES = ("lake", "maintain")
ELSEWHERE = ("192.0.2.7", 4711)
HERE = ("127.0.0.1", 4711)


async def access_to(folder: Path, text: str = FILE, **more: Any) -> Access:
    """Who is let in by the tokens of this file."""
    file = folder / "tokens"
    file.write_text(text)
    access = Access(Tokens(file), **more)
    await access.step()
    return access


async def app_with(access: Access) -> FastAPI:
    return await app_of(small_baton(), InMemoryRunner(), access=access)


def client_of(
    app: FastAPI, token: str = "", *, address: tuple[str, int] = ELSEWHERE, **headers: str
) -> httpx.AsyncClient:
    """A machine that shows this token."""
    shown = {"authorization": f"Bearer {token}"} if token else {}
    transport = httpx.ASGITransport(app, client=address)
    return httpx.AsyncClient(transport=transport, base_url="http://control", headers=shown | headers)


def calls_of(app: FastAPI) -> list[tuple[str, str]]:
    """Every method and path that the app serves, without HEAD, which is GET; jobs have paths of their own."""
    found: list[tuple[str, str]] = []
    for route in iter_route_contexts(app.routes):
        path = route.path or ""
        paths = [path.replace("{name}", job) for job in JOB_NAMES] if "{name}" in path else [path]
        paths = [re.sub(r"\{[^}]*\}", "1", path) for path in paths]
        found += itertools.product(sorted({*(route.methods or ())} - {"HEAD"}), paths)
    return found


async def test_a_new_route_needs_a_decision(tmp_path: Path) -> None:
    """Whoever adds a route that acts adds its role to ACTS; until then it needs `admin`."""
    calls = calls_of(await app_with(await access_to(tmp_path)))
    acting = {(method, path) for method, path in calls if method != "GET" and path not in OPEN}

    decided = {call for call in acting if any(matches(call, line) for line in ACTS)}

    assert decided == acting
    assert [line for line in ACTS if not any(matches(call, line) for call in acting)] == []
    assert len(calls) > 20
    assert needed_role("PUT", "/new") == needed_role("POST", "/jobs/maintain/runs\n") == "admin"


def matches(call: tuple[str, str], line: tuple[str, str, Role]) -> bool:
    """Whether the line is about this call."""
    parts, forms = call[1].split("/"), line[1].split("/")
    is_same = [form.startswith("{") or form == part for form, part in zip(forms, parts, strict=False)]
    return call[0] == line[0] and len(parts) == len(forms) and all(is_same)


async def test_every_role_may_do_what_the_table_says(tmp_path: Path) -> None:
    """Reading needs `view`, what acts `operate`, deleting for good `admin`; probes and styles nothing."""
    app = await app_with(await access_to(tmp_path))
    admin_only = {("POST", "/jobs/maintain/runs"), ("POST", "/console/jobs/maintain/runs")}
    admin_only |= {("POST", "/queues/1/purge"), ("POST", "/console/queues/1/purge"), ("DELETE", "/groups/1")}

    for (method, path), role in itertools.product(calls_of(app), [None, *ROLES]):
        if path in OPEN or path.startswith(FILES):
            allowed: set[Role | None] = {None, *ROLES}
        elif method == "GET":
            allowed = {*ROLES}
        else:
            allowed = {"admin"} if (method, path) in admin_only else {"operate", "admin"}
        async with client_of(app, TOKENS[role] if role else "") as client:
            refusal = await refusal_of(client, method, path)
        expected = None if role in allowed else 401 if role is None else 403
        assert refusal == expected, (method, path, role)


async def refusal_of(client: httpx.AsyncClient, method: str, path: str) -> int | None:
    """The status of the gate's refusal; None if the request has passed it."""
    # HEAD needs what GET needs, and ends even if the answer has no end
    answer = await client.request("HEAD" if method == "GET" else method, path)
    is_problem = answer.headers.get("content-type") == PROBLEM  # the form is a page
    return answer.status_code if is_problem and answer.status_code in (401, 403) else None


async def test_a_refusal_says_what_is_missing(tmp_path: Path) -> None:
    """401 with a challenge for a machine without a good token; 403 with the role that is needed."""
    app = await app_with(await access_to(tmp_path))
    async with client_of(app) as client:
        missing = await client.get("/streams")
        head = await client.head("/streams")
    async with client_of(app, "x" * 20) as client:
        refused = await client.get("/streams")
    async with client_of(app, TOKENS["view"]) as client:
        lacking = await client.post("/operations")

    assert missing.headers["www-authenticate"] == head.headers["www-authenticate"] == 'Bearer realm="baton"'
    assert "BATON_TOKEN_FILE" in missing.json()["detail"]
    assert (refused.status_code, refused.json()["type"]) == (401, "urn:baton:wrong-token")
    assert 'error="invalid_token"' in refused.headers["www-authenticate"]
    assert lacking.json()["needed"] == "operate"
    assert "`view-er` has `view`" in lacking.json()["detail"]


async def test_a_call_that_does_not_exist_is_refused_first(tmp_path: Path) -> None:
    """Strangers learn nothing from it; with a role it is a 404 or a 405 as ever."""
    app = await app_with(await access_to(tmp_path))
    async with client_of(app) as nobody, client_of(app, TOKENS["admin"]) as admin:
        assert (await nobody.get("/nothing")).status_code == 401
        assert (await admin.get("/nothing")).status_code == 404
        assert (await admin.put("/streams", json={})).status_code == 405


@pytest.mark.parametrize("role", ROLES)
async def test_nobody_acts_on_a_control_that_is_read_only(tmp_path: Path, role: Role) -> None:
    """Whatever their role; they read as ever, and log in."""
    app = await app_with(await access_to(tmp_path, is_read_only=True))
    async with client_of(app, TOKENS[role]) as client:
        for method, path in calls_of(app):
            is_refused = method != "GET" and path not in OPEN
            assert await refusal_of(client, method, path) == (403 if is_refused else None), (method, path)
        assert (await client.post("/operations")).json()["type"] == "urn:baton:read-only"
        assert (await client.get("/me")).json()["read_only"] is True


@pytest.mark.parametrize(
    ("address", "headers", "is_open", "is_served"),
    [
        *((address, {}, False, True) for address in ("127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1")),
        *((address, {}, False, False) for address in ("192.0.2.7", "172.17.0.1", "::ffff:192.0.2.7", "")),
        *(
            ("127.0.0.1", {header: "192.0.2.7"}, False, False)
            for header in ("x-forwarded-for", "forwarded", "via", "x-real-ip")
        ),
        ("192.0.2.7", {}, True, True),
    ],
)
async def test_without_tokens_control_serves_its_own_machine_alone(
    address: str, headers: dict[str, str], is_open: bool, is_served: bool
) -> None:
    """BATON_CONTROL_OPEN=1 serves everybody. Whoever comes through a proxy is not on this machine."""
    app = await app_with(Access(is_open=is_open))
    async with client_of(app, address=(address, 4711), **headers) as client:
        answer = await client.get("/streams")
        acting = await client.post("/jobs/maintain/runs")
        probe = await client.get("/readyz")

    assert (answer.status_code, acting.status_code) == ((200, 202) if is_served else (403, 403))
    assert probe.status_code == 200
    if not is_served:
        assert answer.json()["type"] == "urn:baton:elsewhere-refused"
        assert "BATON_CONTROL_TOKENS_FILE" in answer.json()["detail"]


async def test_a_caller_without_an_address_is_on_no_machine_of_ours() -> None:
    """A server without addresses, such as one on a Unix socket, must not count as loopback."""
    app = await app_with(Access())
    transport: Any = httpx.ASGITransport(app, client=None)  # type: ignore[arg-type]
    async with httpx.AsyncClient(transport=transport, base_url="http://control") as client:
        assert (await client.get("/streams")).status_code == 403


async def test_me_says_who_the_caller_is(tmp_path: Path) -> None:
    """By the token; without tokens it is anybody, and `open` says whether strangers are served."""
    app = await app_with(await access_to(tmp_path, is_open=True))
    async with client_of(app, TOKENS["operate"]) as client:
        known = (await client.get("/me")).json()
    found = []
    for is_open in (True, False):
        async with client_of(await app_with(Access(is_open=is_open)), address=HERE) as client:
            found.append((await client.get("/me")).json())

    assert known == {"name": "operate-er", "role": "operate", "read_only": False, "open": False}
    assert [Caller(name=me["name"], role=me["role"]) for me in found] == [ANYBODY, ANYBODY]
    assert [me["open"] for me in found] == [True, False]


@pytest.mark.parametrize("header", ["authorization", "x-write-key", "query"])
async def test_a_write_key_of_the_producers_opens_nothing(tmp_path: Path, header: str) -> None:
    """Keys stand in web pages. Nor does a token open control in the places where write keys may be."""
    key = "k1-0123456789abcdef"
    app = await app_with(await access_to(tmp_path))
    async with client_of(app) as client:
        for secret in (key, TOKENS["admin"]) if header != "authorization" else (key,):
            headers = {header: f"Bearer {secret}"} if header != "query" else {}
            query = {"write_key": secret} if header == "query" else {}
            answer = await client.get("/streams", headers=headers, params=query)
            assert answer.status_code == 401


async def test_the_guard_stands_before_the_gate(tmp_path: Path) -> None:
    """A good token does not help a page of another site, or a request by another name."""
    app = await app_with(await access_to(tmp_path))
    async with client_of(app, TOKENS["admin"]) as client:
        foreign = await client.post("/operations", headers={"origin": "http://evil.example"})
        misled = await client.get("/streams", headers={"host": "evil.example"})

    assert (foreign.status_code, foreign.json()["type"]) == (403, "urn:baton:origin-refused")
    assert misled.status_code == 421
