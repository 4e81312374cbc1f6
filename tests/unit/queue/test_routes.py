"""A queue over HTTP: what each route does, and how it refuses."""

from __future__ import annotations

import gzip
from typing import Any

import pytest

from services.queue.core.items import ItemRecord
from services.queue.http.exchange import MAX_REQUEST_BYTES
from tests.fakes.queues import InMemoryQueueStore
from tests.fakes.virtual_time import virtual_time
from tests.unit.queue.world import receipts, worker


@virtual_time
async def test_an_item_is_leased_once_and_done_when_acked() -> None:
    """Nobody else gets a leased item, and nobody at all an acked one."""
    async with worker(InMemoryQueueStore()) as one:
        await one.call("PUT", "q", {})
        await one.put({"data": {"n": 1}}, {"data": [2]})

        first = await one.lease()
        second = await one.lease(max=10)
        third = await one.lease()
        done = await one.call("POST", "q/ack", {"receipts": receipts(first + second)})
        status = await one.call("GET", "q")

    assert [item["data"] for item in first + second] == [{"n": 1}, [2]]
    assert (first[0]["attempt"], first[0]["id"]) == (1, None)
    assert first[0]["until"] - first[0]["enqueued_at"] == 30_000
    assert third == []
    assert done == {"done": 2, "stale": []}
    assert (status["ready"], status["leased"], status["oldest_age_s"]) == (0, 0, None)


@virtual_time
async def test_a_released_item_comes_back_at_once_or_later() -> None:
    """Its attempts count on, and the old receipt is stale once it was leased again."""
    async with worker(InMemoryQueueStore()) as one:
        await one.call("PUT", "q", {})
        await one.put({"data": 1})
        (first,) = await one.lease()
        await one.call("POST", "q/release", {"receipts": [first["receipt"]]})
        (second,) = await one.lease()
        await one.call("POST", "q/release", {"receipts": [second["receipt"]], "delay_s": 15})

        status = await one.call("GET", "q")
        nothing = await one.lease()
        (third,) = await one.lease(wait_s=16)
        stale = await one.http.post("/queues/q/ack", json={"receipts": [second["receipt"]]})
        both = await one.call("POST", "q/ack", {"receipts": [second["receipt"], third["receipt"]]})

    assert (second["attempt"], third["attempt"]) == (2, 3)
    assert (status["ready"], status["leased"], status["waiting"]) == (0, 0, 1)
    assert nothing == []
    assert third["until"] - second["until"] >= 15_000
    assert (stale.status_code, stale.json()["type"]) == (409, "urn:baton:all-stale")
    assert both == {"done": 1, "stale": [0]}


@virtual_time
async def test_an_extended_lease_ends_later() -> None:
    """Counted from now; after its first end nobody else gets the item."""
    async with worker(InMemoryQueueStore()) as one:
        await one.call("PUT", "q", {"lease_s": 5})
        await one.put({"data": 1})
        (item,) = await one.lease()
        await one.call("POST", "q/extend", {"receipts": [item["receipt"]], "lease_s": 15})

        too_early = await one.lease(wait_s=14)
        (again,) = await one.lease(wait_s=2)

    assert too_early == []
    assert again["attempt"] == 2


@virtual_time
async def test_items_without_success_become_dead_letters_and_can_be_redriven() -> None:
    """After `max_attempts` leases, or at once if rejected; with why, attempts, and their old id."""
    async with worker(InMemoryQueueStore()) as one:
        await one.call("PUT", "q", {"max_attempts": 2, "lease_s": 1})
        await one.put({"data": "often", "id": "a"}, {"data": "bad"})
        _, bad = await one.lease(max=2)
        first = bad["receipt"].split("/")[2]
        await one.call("POST", "q/reject", {"receipts": [bad["receipt"]], "why": "no such user"})
        (last,) = await one.lease(wait_s=2)
        buried = await one.lease(wait_s=2)

        letters = await one.lease("q.dead", max=10)
        status = await one.call("GET", "q")
        await one.call("POST", "q.dead/release", {"receipts": receipts(letters)})
        ready = await one.call("POST", "q/redrive")
        again = await one.lease(max=10)

    assert (last["data"], last["attempt"], buried) == ("often", 2, [])
    assert {item["data"]: item["headers"] for item in letters} == {
        "bad": {"attempts": "1", "why": "no such user"},
        "often": {"attempts": "2", "why": "max_attempts", "item": "a"},
    }
    ids = {item["data"]: item["id"] for item in letters}
    assert ids["often"].startswith(f"q/0/0/{first}/")
    assert ids["bad"].startswith(f"q/0/1/{first}/")
    assert (status["dead"], status["ready"], status["leased"]) == (2, 0, 0)
    assert ready == {"ready": 2}
    assert {(item["data"], item["id"], item["attempt"]) for item in again} == {
        ("bad", ids["bad"], 1),
        ("often", "a", 1),
    }
    assert all("headers" not in item for item in again)


@virtual_time
async def test_an_id_is_handed_out_once_until_it_is_forgotten() -> None:
    """Its repeats are done, while it is open and for `repeat_ms` after its ack."""
    async with worker(InMemoryQueueStore()) as one:
        await one.call("PUT", "q", {"repeat_ms": 10_000})
        await one.put({"data": 1, "id": "a"}, {"data": 2, "id": "a"}, {"data": 3, "id": "b"})
        found = await one.lease(max=10)
        await one.call("POST", "q/ack", {"receipts": receipts(found)})
        await one.put({"data": 4, "id": "a"})
        repeated = await one.lease(wait_s=11)
        await one.put({"data": 5, "id": "a"})
        forgotten = await one.lease()

    assert [(item["data"], item["id"]) for item in found] == [(1, "a"), (3, "b")]
    assert repeated == []
    assert [item["data"] for item in forgotten] == [5]


@virtual_time
async def test_a_seek_and_a_purge_tell_before_what_they_would_do() -> None:
    """`dry_run` changes nothing. Sought items are handed out again, also under a known id."""
    async with worker(InMemoryQueueStore()) as one:
        await one.call("PUT", "q", {})
        await one.put(*({"data": n, "id": str(n)} for n in range(4)))
        found = await one.lease(max=3)
        await one.call("POST", "q/ack", {"receipts": receipts(found[:2])})

        would = await one.call("POST", "q/seek", {"to": {"0": 1}, "dry_run": True})
        before = await one.call("GET", "q")
        sought = await one.call("POST", "q/seek", {"to": {"0": 1}})
        again = await one.lease(max=10)
        purge = [await one.call("POST", "q/purge", {"dry_run": dry_run}) for dry_run in (True, False)]
        after = await one.call("GET", "q")
        stale = await one.http.post("/queues/q/release", json={"receipts": receipts(again)})

    assert (would, before["ready"], sought) == ({"ready": 3}, 1, {"ready": 3})
    assert [item["data"] for item in again] == [1, 2, 3]
    assert purge == [{"ready": 3}, {"ready": 0}]
    assert (after["ready"], after["leased"], stale.status_code) == (0, 0, 409)


@virtual_time
async def test_a_queue_over_a_topic_hands_out_its_records() -> None:
    """Offsets without a record are skipped; what is not JSON comes in base64; nothing is redriven."""
    store = InMemoryQueueStore()
    topic = store.make_topic("sessions", 2)
    topic.partitions[0] += [ItemRecord(value=b'{"id":1}'), None, ItemRecord(value=b"\xff")]
    topic.partitions[1] += [None, None]
    async with worker(store) as one:
        shown = await one.call("PUT", "q", {"over": "sessions"})
        found = await one.lease(max=10) + await one.lease(max=10)
        refused = await one.http.post("/queues/q/redrive")
        fixed = await one.http.put("/queues/q", json={"over": "others"})
        await one.call("POST", "q/ack", {"receipts": receipts(found)})
        status = await one.call("GET", "q")
        unknown = await one.http.put("/queues/r", json={"over": "others"})

    assert shown["settings"]["partitions"] == 2
    assert [item.get("data", item.get("raw")) for item in found] == [{"id": 1}, "/w=="]
    assert (refused.status_code, fixed.status_code, unknown.status_code) == (409, 409, 422)
    assert (status["ready"], status["leased"]) == (0, 0)


@virtual_time
async def test_settings_stay_unless_they_are_given() -> None:
    """A second PUT changes what it names; a queue can be deleted and made anew."""
    async with worker(InMemoryQueueStore()) as one:
        await one.call("PUT", "q", {"lease_s": 7, "max_attempts": 3, "partitions": 2})
        changed = await one.call("PUT", "q", {"keep_s": 60})
        listed = (await one.http.get("/queues")).json()
        await one.call("DELETE", "q")
        gone = await one.http.get("/queues/q")
        anew = await one.call("PUT", "q", {})

    assert changed["settings"] == {
        "over": "",
        "partitions": 2,
        "lease_s": 7.0,
        "max_attempts": 3,
        "repeat_ms": 300_000,
        "keep_s": 60.0,
    }
    assert [queue["queue"] for queue in listed["queues"]] == ["q"]
    assert gone.status_code == 404
    assert anew["settings"]["partitions"] == 1


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "missing/lease", {}, 404),
        ("GET", "missing", None, 404),
        ("PUT", "Upper", {}, 422),
        ("PUT", "q.dead", {}, 422),
        ("POST", "q/lease", {"max": 101}, 422),
        ("POST", "q/lease", {"wait_s": 21}, 422),
        ("POST", "q/lease", {"wait": 1}, 422),
        ("POST", "q/ack", {"receipts": []}, 422),
        ("POST", "q/ack", {"receipts": ["a/b/c"]}, 409),
        ("POST", "q/ack", {"receipts": ["0/7/7/" + "A" * 16]}, 409),
        ("POST", "q/ack", {"receipts": ["9/0/0"]}, 409),
        ("POST", "q/seek", {"to": "yesterday"}, 422),
        ("POST", "q/seek", {"to": {"1": 0}}, 422),
        ("POST", "q/seek", {"to": {"9" * 5000: 0}}, 422),
        ("POST", "q/seek", {"to": 10**30}, 422),
        ("POST", "q/ack", {"receipts": ["0/0/" + "9" * 18] * 1000}, 409),
        ("POST", "q/ack", {"receipts": ["0/0/0"] * 1001}, 422),
        ("POST", "q/ack", {"receipts": ["0/0/" + "9" * 5000] * 1000}, 413),
        ("POST", "q/ack", {"receipts": ["٠/٠/٠/" + "A" * 16]}, 409),
        ("POST", "b\u00fccher/lease", {}, 404),
        ("POST", "%ff%00/lease", {}, 404),
        ("PUT", "b\u00fccher", {}, 422),
        ("POST", "q.dead/items", {"data": 1}, 409),
        ("DELETE", "q.dead", None, 409),
        ("POST", "q/items", [{"dada": 1}], 422),
        ("POST", "q.dead/reject", {"receipts": ["0/0/0"]}, 409),
    ],
)
@virtual_time
async def test_what_is_refused(method: str, path: str, body: Any, status: int) -> None:
    """Each refusal is a problem document with its status."""
    async with worker(InMemoryQueueStore()) as one:
        await one.call("PUT", "q", {})
        answer = await one.http.request(method, f"/queues/{path}", json=body)

    assert (answer.status_code, answer.json()["status"]) == (status, status)
    assert answer.headers["content-type"] == "application/problem+json"


@virtual_time
async def test_bodies_of_items_are_those_of_fragments() -> None:
    """One object, an array, lines, also packed; items are rejected one by one."""
    async with worker(InMemoryQueueStore()) as one:
        await one.call("PUT", "q", {})

        async def post(body: bytes, kind: str, coding: str = "identity") -> tuple[int, Any]:
            headers = {"content-type": kind, "content-encoding": coding}
            answer = await one.http.post("/queues/q/items", content=body, headers=headers)
            return answer.status_code, answer.json()

        lines = b'{"data":1}\n\n{"data":2,"id":"x"}\n'
        single = await post(b'{"data":null}', "application/json")
        ndjson = await post(lines, "application/x-ndjson")
        packed = await post(gzip.compress(lines), "application/x-ndjson", "gzip")
        mixed = await post(b'[{"data":1},{"data":,},{"data":1,"id":""}]', "application/json")
        statuses = [
            await post(b"nonsense", "application/json"),
            await post(b"{}", "application/xml"),
            await post(b" " * (MAX_REQUEST_BYTES + 1), "application/json"),
        ]
        empty = await post(b"[]", "application/json")

    assert [single[0], ndjson[0], packed[0]] == [200] * 3
    assert [one["accepted"] for _, one in (single, ndjson, packed, empty)] == [1, 2, 2, 0]
    assert [(one["index"], one["reason"]) for one in mixed[1]["rejected"]] == [(1, "malformed"), (2, "id")]
    assert [status for status, _ in statuses] == [400, 415, 413]


@virtual_time
async def test_without_kafka_nothing_is_promised() -> None:
    """503 with `Retry-After`, and the service is not ready once it has noticed."""
    store = InMemoryQueueStore()
    async with worker(store) as one:
        await one.call("PUT", "q", {})
        store.is_away = True
        put = await one.http.post("/queues/q/items", json={"data": 1})
        lease = await one.http.post("/queues/q/lease")

    assert (put.status_code, lease.status_code) == (503, 503)
    assert put.json()["unstored"] == [0]
    assert put.headers["retry-after"] == lease.headers["retry-after"] == "1"


@virtual_time
async def test_too_much_at_once_is_refused() -> None:
    """What is in flight is bounded."""
    async with worker(InMemoryQueueStore(), max_inflight_bytes=20_000) as one:
        await one.call("PUT", "q", {})
        answer = await one.http.post("/queues/q/items", json={"data": "x" * 30_000})

    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")


@virtual_time
async def test_metrics_say_what_a_queue_holds() -> None:
    """By queue, with what has happened since its creation."""
    async with worker(InMemoryQueueStore()) as one:
        await one.call("PUT", "q", {})
        await one.put({"data": 1}, {"data": 2})
        found = await one.lease()
        await one.call("POST", "q/ack", {"receipts": receipts(found)})
        text = (await one.http.get("/metrics")).text

    assert 'baton_queue_items{queue="q",state="ready"} 1.0' in text
    assert 'baton_queue_leases_total{queue="q"} 1.0' in text
    assert 'baton_queue_acks_total{queue="q"} 1.0' in text


@virtual_time
async def test_nothing_is_written_to_the_topic_of_others() -> None:
    """A queue over `sessions` must not invent sessions; Kafka's own topics are no queues at all."""
    store = InMemoryQueueStore()
    store.make_topic("sessions")
    async with worker(store) as one:
        await one.call("PUT", "q", {"over": "sessions"})
        put = await one.http.post("/queues/q/items", json={"data": 1})
        internal = await one.http.put("/queues/r", json={"over": "__consumer_offsets"})

    assert (put.status_code, internal.status_code) == (409, 422)
    assert store.topics["sessions"].partitions == [[]]


@virtual_time
async def test_a_look_at_items_leases_nothing() -> None:
    """The oldest that are not done, leased or not, of every partition; of long data only the begin."""
    async with worker(InMemoryQueueStore()) as one:
        await one.call("PUT", "q", {"partitions": 2})
        await one.put({"data": "done"}, {"data": "leased"}, {"data": "x" * 5_000, "id": "long"})
        await one.put({"data": "other"})
        first = await one.lease(max=4)
        done = [item["receipt"] for item in first if item["data"] == "done"]
        await one.call("POST", "q/ack", {"receipts": done})
        before = await one.call("GET", "q")
        looked = (await one.call("GET", "q/items"))["items"]
        after = await one.call("GET", "q")
        short = (await one.call("GET", "q/items?limit=1"))["items"]
        too_many = await one.http.get("/queues/q/items?limit=51")
        (letter,) = [item["receipt"] for item in first if item["data"] == "leased"]
        await one.call("POST", "q/reject", {"receipts": [letter], "why": "no such user"})
        (dead,) = (await one.call("GET", "q.dead/items"))["items"]

    assert {item["text"][:8]: item["size"] for item in looked} == {
        '"leased"': 8,
        '"xxxxxxx': 5_002,
        '"other"': 7,
    }
    assert [item["id"] for item in looked if item["size"] > 8] == ["long"]
    assert all(len(item["text"]) <= 2_000 for item in looked)
    assert before == after
    assert len(short) == 1
    assert too_many.status_code == 422
    assert (dead["text"], dead["headers"]["why"]) == ('"leased"', "no such user")
