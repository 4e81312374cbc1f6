"""The guard: which requests control refuses because a page of another site may have sent them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from services.control.settings import ControlSettings
from shared.errors import SettingsInvalid
from shared.service.settings import load
from tests.unit.control.http.test_app import Face, face_of
from tests.unit.control.sources import small_baton

RUN = "/jobs/lake/runs"
FORM = "application/x-www-form-urlencoded"


@pytest.fixture
async def face() -> AsyncIterator[Face]:
    face = await face_of(small_baton())
    async with face.http:
        yield face


@pytest.mark.parametrize(
    ("host", "is_own"),
    [
        *((host, True) for host in ("localhost", "LOCALHOST.:8000", "baton.localhost:1", "control:8000")),
        *((host, True) for host in ("127.0.0.1:8000", "192.0.2.7", "[::1]:8000", "[2001:db8::7]")),
        *((host, False) for host in ("evil.example", "control.evil.example:8000", "evil.example.control")),
        *((host, False) for host in ("", "127.0.0.1.evil.example", "control@evil.example", "[::1", "a:b")),
        *((host, False) for host in ("control/", "localhost?", "notlocalhost")),
    ],
)
async def test_control_answers_to_its_own_names_alone(face: Face, host: str, is_own: bool) -> None:
    """To IP addresses, loopback names and listed names: else a page could read through a rebound name."""
    answer = await face.http.get("/streams", headers={"host": host})

    assert answer.status_code == (200 if is_own else 421)


@pytest.mark.parametrize("path", ["/streams", "/me", "/tables", "/nothing", "/metrics", "/console/jobs"])
async def test_no_browser_stores_an_answer_or_guesses_its_type(face: Face, path: str) -> None:
    """It may hold what clients have posted; a refusal by the guard itself has the headers, too."""
    answers = [await face.http.get(path, headers={"host": host}) for host in ("control", "evil.example")]

    assert [answer.headers["x-content-type-options"] for answer in answers] == ["nosniff"] * 2
    assert [answer.headers.get_list("cache-control") for answer in answers] == [["no-store"]] * 2


@pytest.mark.parametrize("path", ["/livez", "/metrics", "/docs", "/openapi.json", RUN, "/nothing"])
async def test_every_call_must_name_control(face: Face, path: str) -> None:
    """Whatever it asks for; nothing happens otherwise."""
    method = "POST" if path == RUN else "GET"
    answer = await face.http.request(method, path, headers={"host": "evil.example"})
    twice = await face.http.request(method, path, headers=[("host", "control"), ("host", "evil.example")])

    assert (answer.status_code, answer.json()["type"]) == (421, "urn:baton:misdirected-request")
    assert twice.status_code == 421
    assert face.runner.submissions == []


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 202),
        ({"content-type": "application/json"}, 202),
        ({"content-type": "Application/JSON; charset=utf-8", "origin": "http://control"}, 202),
        ({"origin": "http://control:80", "sec-fetch-site": "same-origin"}, 202),
        ({"origin": "https://control"}, 202),
        ({"sec-fetch-site": "none"}, 202),
        ({"origin": "http://control:8000"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://localhost"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": ""}, 403),
        ({"origin": "http://"}, 403),
        ({"origin": "file://control"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"content-type": FORM}, 415),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "multipart/form-data; boundary=x"}, 415),
        ({"content-type": "application/json-seq"}, 415),
    ],
)
async def test_only_callers_of_the_same_origin_start_and_cancel(
    face: Face, headers: dict[str, str], status: int
) -> None:
    """A form or script of another site starts nothing; clients that are not browsers send no origin."""
    started = await face.http.post(RUN, headers=headers)

    assert started.status_code == status
    assert len(face.runner.submissions) == (status == 202)
    assert (await face.http.post("/operations", headers=headers)).status_code in (422, status)
    if status == 403:
        run = (await face.http.post(RUN)).json()
        assert (await face.http.delete(f"/runs/{run['id']}", headers=headers)).status_code == 403
        assert (await face.http.get("/streams", headers=headers)).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://control"}, 303),
        ({"origin": "http://control", "sec-fetch-site": "same-origin"}, 303),
        ({}, 415),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://control", "sec-fetch-site": "cross-site"}, 403),
        ({"origin": "http://control", "content-type": "text/plain"}, 415),
        ({"origin": "http://control", "content-type": "multipart/form-data; boundary=x"}, 415),
    ],
)
async def test_forms_act_from_pages_of_the_console_alone(
    face: Face, headers: dict[str, str], status: int
) -> None:
    """They must name their origin, and it must be control; elsewhere no form acts."""
    form = {"content-type": FORM} | headers
    answer = await face.http.post("/console/jobs/lake/runs", headers=form, content=b"group=default")
    elsewhere = await face.http.post(RUN, headers=form, content=b"group=default")

    assert answer.status_code == status
    assert len(face.runner.submissions) == (status == 303)
    assert elsewhere.status_code in (403, 415)


async def test_a_body_without_a_type_is_refused(face: Face) -> None:
    """Scripts can send one to another site without asking first, of any length."""

    async def chunks() -> AsyncIterator[bytes]:
        yield b"{}"

    for content in (b"{}", chunks()):
        answer = await face.http.post(RUN, content=content)
        assert (answer.status_code, answer.headers["accept"]) == (415, "application/json")
    assert face.runner.submissions == []


@pytest.mark.parametrize(
    ("environment", "hosts"),
    [
        ({}, {"127.0.0.1"}),
        (
            {"BATON_HOST": "10.0.0.7", "BATON_HOSTS": "control, baton.example "},
            {"10.0.0.7", "control", "baton.example"},
        ),
        ({"BATON_HOST": "::", "BATON_ADVERTISE": "https://baton.example/control"}, {"::", "baton.example"}),
    ],
)
def test_control_knows_its_own_names(environment: dict[str, str], hosts: set[str]) -> None:
    """Those of BATON_HOSTS, where it listens, and the address that it advertises."""
    assert set(load(ControlSettings, environment).own_hosts) == hosts


@pytest.mark.parametrize("name", ["http://control", "control:8000", "*.example", "con trol", "-"])
def test_a_listed_host_is_a_name_alone(name: str) -> None:
    """A scheme or a port there would never match, and control would refuse that name silently."""
    with pytest.raises(SettingsInvalid, match="BATON_HOSTS"):
        load(ControlSettings, {"BATON_HOSTS": f"control,{name}"})
