"""Keys for queues: every scope on every route, and what a file may hold."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest
from starlette.datastructures import Headers

from services.queue.app import create_face
from services.queue.http.keys import MissingKey, QueueKeys, Scope, WrongKey, WrongScope, parse_grant, scope_of
from services.queue.worker.queues import Queues
from shared.errors import InvalidInput
from shared.service.inflight import Inflight
from tests.fakes.http import FaceTransport
from tests.fakes.queues import InMemoryQueueStore
from tests.fakes.virtual_time import virtual_time
from tests.unit.queue.world import worker

ROUTES = {
    ("GET", "/queues"): None,
    ("GET", "/queues/{queue}"): None,
    ("GET", "/queues/{queue}/items"): Scope.MANAGE,
    ("PUT", "/queues/{queue}"): Scope.MANAGE,
    ("DELETE", "/queues/{queue}"): Scope.MANAGE,
    ("POST", "/queues/{queue}/seek"): Scope.MANAGE,
    ("POST", "/queues/{queue}/purge"): Scope.MANAGE,
    ("POST", "/queues/{queue}/redrive"): Scope.MANAGE,
    ("POST", "/queues/{queue}/items"): Scope.ENQUEUE,
    ("POST", "/queues/{queue}/lease"): Scope.WORK,
    ("POST", "/queues/{queue}/ack"): Scope.WORK,
    ("POST", "/queues/{queue}/release"): Scope.WORK,
    ("POST", "/queues/{queue}/reject"): Scope.WORK,
    ("POST", "/queues/{queue}/extend"): Scope.WORK,
}


@virtual_time
async def test_every_route_has_its_scope() -> None:
    """A new route is missing here, and until then needs `manage`."""
    async with worker(InMemoryQueueStore()) as one:
        document = (await one.http.get("/openapi.json")).json()
    found = {
        (method.upper(), path)
        for path, methods in document["paths"].items()
        for method in methods
        if path.startswith("/queues")
    }

    assert found == ROUTES.keys()
    assert {route: scope_of(route[0], route[1].replace("{queue}", "q")) for route in ROUTES} == ROUTES


@pytest.mark.parametrize("scope", Scope)
@pytest.mark.parametrize("route", ROUTES)
async def test_a_key_opens_the_routes_of_its_scope(
    route: tuple[str, str], scope: Scope, tmp_path: Path
) -> None:
    """And no others; everybody may see whether the service is well."""
    file = tmp_path / "keys"
    file.write_text(f"# of the team\nk1 {scope.value} \n")
    keys = QueueKeys(file)
    await keys.step()
    method, path = route
    good = Headers({"authorization": "Bearer k1"})

    def check(headers: Headers) -> None:
        keys.check(method, path.replace("{queue}", "q"), headers)

    if ROUTES[route] in (None, scope):
        check(good)
    else:
        with pytest.raises(WrongScope):
            check(good)
    with pytest.raises(WrongKey):
        check(Headers({"authorization": "Bearer k2"}))
    with pytest.raises(MissingKey):
        check(Headers({}))
    keys.check("GET", "/metrics", Headers({}))


async def test_the_gate_answers_before_the_body_is_read(tmp_path: Path) -> None:
    """With problem documents: 401 asks for a key, 403 does not, 503 while the file cannot be read."""
    file = tmp_path / "keys"
    keys = QueueKeys(file)
    await keys.step()
    face = create_face(Queues(InMemoryQueueStore()), Inflight(10_000_000), asyncio.Event(), keys, ["queue"])
    headers = {"authorization": "Bearer k1"}
    async with httpx.AsyncClient(transport=FaceTransport(face), base_url="http://queue") as http:
        unread = await http.post("/queues/q/ack", headers=headers)
        ready = await http.get("/readyz")
        file.write_text("k1 enqueue\n")
        await keys.step()
        missing = await http.post("/queues/q/ack")
        wrong = await http.post("/queues/q/ack", headers=headers)

    assert (unread.status_code, ready.status_code) == (503, 503)
    assert (missing.status_code, missing.headers["www-authenticate"]) == (401, "Bearer")
    assert (wrong.status_code, wrong.json()["type"]) == (403, "urn:baton:wrong-scope")


async def test_a_key_with_names_opens_these_queues_and_their_dead_letters_alone(tmp_path: Path) -> None:
    """Neither another queue, by whatever path, nor the list, nor a topic through a queue of its own."""
    file = tmp_path / "keys"
    file.write_text("all manage+work+enqueue\nsome manage+work+enqueue mail,post\n")
    keys = QueueKeys(file)
    await keys.step()
    store = InMemoryQueueStore()
    store.make_topic("sessions")
    queues = Queues(store)
    running = asyncio.create_task(queues.run())
    face = create_face(queues, Inflight(10_000_000), asyncio.Event(), keys, ["queue"])
    async with httpx.AsyncClient(transport=FaceTransport(face), base_url="http://queue") as http:

        async def ask(method: str, path: str, body: object = None, key: str = "some") -> int:
            headers = {"authorization": f"Bearer {key}"}
            return (await http.request(method, path, json=body, headers=headers)).status_code

        made = [await ask("PUT", f"/queues/{name}", {}, "all") for name in ("pay", "mail")]
        own = [
            await ask("PUT", "/queues/mail", {"lease_s": 9}),
            await ask("POST", "/queues/mail/items", {"data": 1}),
            await ask("POST", "/queues/mail/lease", {}),
            await ask("GET", "/queues/mail"),
            await ask("POST", "/queues/mail.dead/lease", {}),
            await ask("PUT", "/queues/post", {}),
        ]
        refused = [
            await ask(method, path, body)
            for method, path, body in (
                ("GET", "/queues", None),
                ("GET", "/queues/", None),
                ("GET", "/queues/pay", None),
                ("POST", "/queues/pay/items", {"data": 1}),
                ("POST", "/queues/pay/lease", {}),
                ("POST", "/queues/pay%2flease", {}),
                ("POST", "/queues//pay/lease", {}),
                ("POST", "/queues/pay.dead/lease", {}),
                ("DELETE", "/queues/pay", None),
                ("PUT", "/queues/post2", {}),
                ("PUT", "/queues/post", {"over": "sessions"}),
            )
        ]
        by_all = await ask("GET", "/queues", key="all")
    running.cancel()
    await asyncio.wait({running})

    assert made == [200, 200]
    assert own == [200] * 6
    assert refused == [403] * 11
    assert by_all == 200


@pytest.mark.parametrize(
    "line",
    [
        "k1",
        "k1 write",
        "k1 work+",
        "k1 work name=x",
        "k1 work mail,",
        "k1 work Mail",
        "k1 work a b",
        "k1 work *",
    ],
)
def test_a_line_without_a_meaning_is_refused(line: str) -> None:
    """By its number, without a word of it."""
    with pytest.raises(InvalidInput, match="queue key 7") as error:
        parse_grant(line, 7)

    assert "k1" not in str(error.value)
