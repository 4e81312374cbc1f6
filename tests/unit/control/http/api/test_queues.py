"""Control and queues: what it shows, how old it may be, and what it does to them through the real service."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from services.control.adapters.processes.queues import HttpQueues
from services.control.core.causes import KeyReused, cause_of
from services.control.core.history.hour import SLOTS, STEP_MS
from services.control.core.history.queue_history import (
    MAX_QUEUES,
    MAX_SAMPLE_BYTES,
    QueueRing,
    QueuesSample,
    encode_queues_sample,
    parse_queues_sample,
    queues_sample,
)
from services.control.core.queues import (
    QueueConflict,
    QueueOutcomeUnknown,
    QueueRow,
    QueuesUnavailable,
    UnknownQueue,
)
from services.control.live.acts.actions import Actions
from services.control.live.queues.history import QueueHours
from services.control.live.queues.queues import PATIENCE_S, Queues
from services.queue.app import create_face
from services.queue.http.exchange import MAX_REQUEST_BYTES
from services.queue.http.keys import QueueKeys
from shared.errors import InvalidInput
from shared.model.events import Event
from shared.secret_file import SecretFile
from shared.service.inflight import Inflight
from tests.fakes.http import FaceTransport
from tests.fakes.queues import InMemoryQueueStore
from tests.fakes.virtual_time import virtual_time
from tests.unit.control.core.history.test_history import sample
from tests.unit.control.http.test_app import Face, face_of
from tests.unit.control.sources import MAIL, InMemoryQueues, small_baton
from tests.unit.queue.world import Worker, worker

NOW_MS = 1_000_000 * STEP_MS
ANN = cause_of("ann", "the address is mended", None, None)


@dataclass
class Watched:
    """Queues over a source in memory, on a clock that only tests move."""

    source: InMemoryQueues = field(default_factory=lambda: InMemoryQueues({"mail": MAIL}))
    events: list[Event] = field(default_factory=list)
    now_s: float = 100.0

    def __post_init__(self) -> None:
        self.queues = Queues(self.source, Actions(self.events.append, lambda: 7), clock=lambda: self.now_s)


async def test_numbers_that_are_old_are_unknown() -> None:
    """Names and settings stay; an old number must not look like a new one. Before the first answer: a 503."""
    watched = Watched()
    with pytest.raises(QueuesUnavailable):
        watched.queues.rows()
    await watched.queues.step()
    watched.source.is_down = True
    watched.now_s += PATIENCE_S
    await watched.queues.step()
    (young,) = watched.queues.rows()
    watched.now_s += 1
    (old,) = watched.queues.rows()

    assert young == MAIL
    assert (old.queue, old.settings) == (MAIL.queue, MAIL.settings)
    assert {old.ready, old.leased, old.waiting, old.dead, old.oldest_age_s, old.depth} == {None}
    assert watched.queues.stale_ms() == 11_000


async def test_control_without_workers_says_which_setting_is_missing() -> None:
    """It asks nobody, and its loop ends."""
    queues = Queues(None, Actions(lambda _: None))
    await queues.run()
    with pytest.raises(QueuesUnavailable, match="BATON_QUEUE_URL"):
        queues.rows()
    assert list(queues.known()) == []


async def test_who_acted_and_why_is_an_event() -> None:
    """Also when its answer is lost: it may have been done. What was not done, or dry, is no event."""
    watched = Watched()
    await watched.queues.forecast("mail", "purge")
    with pytest.raises(UnknownQueue):
        await watched.queues.act("none", "purge", ANN)
    await watched.queues.act("mail", "redrive", ANN)
    watched.source.is_down = True
    with pytest.raises(QueuesUnavailable):
        await watched.queues.act("mail", "purge", ANN)
    watched.source.is_down, watched.source.loses_answers = False, True
    with pytest.raises(QueueOutcomeUnknown):
        await watched.queues.act("mail", "purge", ANN)

    assert [(one.kind, one.queue, one.group, one.what, one.who, one.why) for one in watched.events] == [
        ("action", "mail", "", "redrive mail", "ann", "the address is mended"),
        ("action", "mail", "", "purge mail, without an answer", "ann", "the address is mended"),
    ]


async def test_an_act_is_done_once_for_a_key() -> None:
    """Also if the second request comes before the first is answered; another request is refused."""
    watched = Watched()
    once = cause_of("ann", "", "k1", ["mail", "redrive"])
    answers = await asyncio.gather(*(watched.queues.act("mail", "redrive", once) for _ in range(3)))
    with pytest.raises(KeyReused):
        await watched.queues.act("mail", "purge", cause_of("ann", "", "k1", ["mail", "purge"]))

    assert watched.source.acts == [("mail", "redrive")]
    assert [answer.items for answer in answers] == [3, 3, 3]
    assert len(watched.events) == 1


async def test_a_failed_act_may_be_tried_again_under_its_key() -> None:
    """What was not answered is not remembered."""
    watched = Watched()
    once = cause_of("ann", "", "k1", ["mail", "redrive"])
    watched.source.is_down = True
    with pytest.raises(QueuesUnavailable):
        await watched.queues.act("mail", "redrive", once)
    watched.source.is_down = False

    assert (await watched.queues.act("mail", "redrive", once)).items == 3


# ---- the last hour ----


def test_the_hour_of_a_queue_has_gaps_where_nobody_answered() -> None:
    """One number per step; the depth is what is not done. Two controls' samples are one."""
    ring = QueueRing()
    for slot, writer in ((0, "a"), (0, "b"), (2, "a"), (SLOTS, "a")):
        ring.add(queues_sample([MAIL], at=NOW_MS - slot * STEP_MS, writer=writer), NOW_MS)
    history = ring.of("mail", NOW_MS)

    assert len(history.depth) == SLOTS
    assert history.depth[-3:] == [8, None, 8]
    assert (history.ready[-1], history.leased[-1], history.waiting[-1], history.dead[-1]) == (5, 2, 1, 3)
    assert history.oldest_age_s[-1] == 90.0
    assert set(history.depth[:-3]) == set(ring.of("other", NOW_MS).depth) == {None}


def test_a_queue_without_items_has_an_age_of_0_and_an_unknown_one_no_sample() -> None:
    """A chart has no gap where a queue was merely empty."""
    empty = QueueRow(queue="empty", ready=0, leased=0, waiting=0, dead=0)
    found = queues_sample([empty, MAIL.without_numbers()], at=NOW_MS, writer="a")

    assert {name: one.oldest_age_s for name, one in found.queues.items()} == {"empty": 0.0}


def test_the_two_kinds_of_samples_share_a_topic() -> None:
    """Each is refused by the other's reader, and read back as it was written; the largest is small."""
    rows = [msgspec.structs.replace(MAIL, queue=f"{n:061d}") for n in range(MAX_QUEUES + 1)]
    large = queues_sample(rows, at=NOW_MS, writer="http://control:8000")
    raw = encode_queues_sample(large)

    assert parse_queues_sample(raw) == large
    assert len(large.queues) == MAX_QUEUES
    assert len(raw) < MAX_SAMPLE_BYTES
    for other in (msgspec.json.encode(sample(0)), b"", b"[]", raw[:-1], raw.replace(b"000,", b"001,", 1)):
        with pytest.raises(InvalidInput):
            parse_queues_sample(other)


async def test_a_restarted_control_knows_the_hour_again() -> None:
    """From what it wrote; samples of groups are left to their own history."""
    watched, written = Watched(), list[bytes]()
    await watched.queues.step()
    hours = QueueHours(watched.queues, written.append, writer="a", now_ms=lambda: NOW_MS)
    hours.step()
    after = QueueHours(watched.queues, written.append, writer="a", now_ms=lambda: NOW_MS)

    assert [after.restore(raw) for raw in (*written, msgspec.json.encode(sample(0)), None)] == [
        True,
        False,
        False,
    ]
    assert after.of("mail") == hours.of("mail")
    assert after.of("mail").dead[-1] == 3
    assert msgspec.json.decode(written[0], type=QueuesSample).queues.keys() == {"mail"}


# ---- the HTTP face ----


@pytest.fixture
async def face() -> AsyncIterator[Face]:
    face = await face_of(small_baton())
    async with face.http:
        yield face


async def test_queues_are_listed_filtered_and_sorted(face: Face) -> None:
    """By the server, like every list."""
    quiet = QueueRow(queue="quiet", ready=9, leased=0, waiting=0, dead=0)
    face.sources.queues.rows["quiet"] = quiet
    unread = await face.get("/queues")
    face = await face_of(face.sources)

    async def names(**query: str | int) -> list[str]:
        return [row["queue"] for row in (await face.get("/queues", **query))["queues"]]

    assert [row["queue"] for row in unread["queues"]] == ["mail"], "lists come from memory"
    assert await names() == ["mail", "quiet"]
    assert await names(sort="-ready") == ["quiet", "mail"]
    assert await names(dead="true") == ["mail"]
    assert await names(after="mail") == ["quiet"]
    page = await face.get("/queues", limit=1)
    assert await names(limit=1, cursor=page["next"]) == ["quiet"]
    assert (await face.get("/queues/mail"))["settings"]["max_attempts"] == 5
    assert (await face.http.get("/queues/none")).status_code == 404


async def test_acts_are_shown_before_they_are_done(face: Face) -> None:
    """A dry run changes nothing; a purge counts what it drops, a redrive what it puts back."""
    would = [
        (await face.http.post(f"/queues/mail/{act}", json={"dry_run": True})).json()
        for act in ("purge", "redrive")
    ]
    before = list(face.sources.queues.acts)
    done = (await face.http.post("/queues/mail/redrive")).json()
    purged = (await face.http.post("/queues/mail/purge", json={"reason": "a test"})).json()

    assert would == [
        {"queue": "mail", "act": "purge", "items": 8, "ready": 0},
        {"queue": "mail", "act": "redrive", "items": 3, "ready": 8},
    ]
    assert before == []
    assert done == would[1]
    assert purged == {"queue": "mail", "act": "purge", "items": 11, "ready": 0}
    assert [(one.what, one.why) for one in face.events] == [("redrive mail", ""), ("purge mail", "a test")]
    assert (await face.get("/queues/mail"))["ready"] == 0, "control has read again"


# ---- the queue service itself ----


@contextlib.asynccontextmanager
async def asked(one: Worker) -> AsyncIterator[HttpQueues]:
    """Control's adapter; the worker that it asks first cannot be reached."""

    def route(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused")

    mounts: dict[str, Any] = {"http://gone": httpx.MockTransport(route)}
    transport = one.http._transport
    async with httpx.AsyncClient(transport=transport, mounts=mounts) as http:
        yield HttpQueues(http, ["http://gone", "http://queue"])


@virtual_time
async def test_a_worker_answers_control() -> None:
    """The real routes, from the first worker that can be reached."""
    async with worker(InMemoryQueueStore()) as one, asked(one) as source:
        await one.call("PUT", "q", {"max_attempts": 1})
        await one.put({"data": 1, "id": "a"}, {"data": 2}, {"data": 3})
        (item,) = await one.lease()
        await one.call("POST", "q/reject", {"receipts": [item["receipt"]], "why": "no such user"})
        (row,) = await source.read()
        (letter,) = await source.letters("q", 10)
        would = [await source.act("q", act, dry_run=True) for act in ("redrive", "purge")]
        ready = await source.act("q", "redrive", dry_run=False)
        after = await source.show("q")
        dropped = await source.act("q", "purge", dry_run=False)
        with pytest.raises(UnknownQueue):
            await source.show("none")

    assert (row.queue, row.ready, row.dead, row.settings.max_attempts) == ("q", 2, 1, 1)
    assert re.fullmatch("q/0/0/1/[0-9a-f]+", letter.id or "")
    assert (letter.text, letter.headers["why"]) == ("1", "no such user")
    assert (would, ready, after.dead, dropped) == ([3, 2], 3, 0, 0)


@virtual_time
async def test_a_queue_over_a_topic_is_not_redriven() -> None:
    """Not even as a dry run: the dead letters have nowhere to go."""
    store = InMemoryQueueStore()
    store.make_topic("sessions", 1)
    async with worker(store) as one, asked(one) as source:
        await one.call("PUT", "q", {"over": "sessions"})
        queues = Queues(source, Actions(lambda _: None))
        with pytest.raises(QueueConflict):
            await queues.forecast("q", "redrive")
        with pytest.raises(QueueConflict):
            await queues.act("q", "redrive", ANN)


async def test_control_shows_its_key(tmp_path: Path) -> None:
    """One with `manage` opens everything that control asks for; another is named in the refusal."""
    keys, own = tmp_path / "keys", tmp_path / "own"
    keys.write_text("good-key manage\nweak-key enqueue+work\n")
    own.write_text("good-key\n")
    async with worker(InMemoryQueueStore()) as one:
        await one.call("PUT", "q", {})
        checked = QueueKeys(keys)
        await checked.step()
        face = create_face(one.queues, Inflight(16 * MAX_REQUEST_BYTES), asyncio.Event(), checked, ["queue"])
        async with httpx.AsyncClient(transport=FaceTransport(face)) as http:
            source = HttpQueues(http, ["http://queue"], SecretFile(str(own), "BATON_QUEUE_KEY_FILE"))
            assert [row.queue for row in await source.read()] == ["q"]
            assert list(await source.letters("q", 1)) == []
            assert await source.act("q", "purge", dry_run=True) == 0
            own.write_text("weak-key-\n")
            with pytest.raises(QueuesUnavailable, match="BATON_QUEUE_KEY_FILE"):
                await source.read()
            own.write_text("weak-key\n")
            with pytest.raises(QueuesUnavailable, match="scope `manage`"):
                await source.act("q", "purge", dry_run=False)


async def test_a_worker_that_hangs_or_fails_does_not_hide_the_next() -> None:
    """Looks and dry runs change nothing, so they may be repeated elsewhere."""

    def route(request: httpx.Request) -> httpx.Response:
        if request.url.host == "a":
            raise httpx.ReadTimeout("no answer")
        if request.url.host == "b":
            return httpx.Response(503, json={"detail": "Kafka is away"})
        return httpx.Response(200, json={"queues": [], "ready": 4})

    async with httpx.AsyncClient(transport=httpx.MockTransport(route)) as http:
        source = HttpQueues(http, ["http://a", "http://b", "http://c"])
        assert list(await source.read()) == []
        assert await source.act("q", "purge", dry_run=True) == 4
        with pytest.raises(QueuesUnavailable, match="Kafka is away") as error:
            await HttpQueues(http, ["http://a", "http://b"]).read()
        assert not isinstance(error.value, QueueOutcomeUnknown)


async def test_an_act_without_an_answer_is_not_sent_to_another_worker() -> None:
    """The first may have done it."""
    sent: list[str] = []

    def route(request: httpx.Request) -> httpx.Response:
        sent.append(str(request.url))
        raise httpx.ReadTimeout("no answer")

    async with httpx.AsyncClient(transport=httpx.MockTransport(route)) as http:
        with pytest.raises(QueueOutcomeUnknown):
            await HttpQueues(http, ["http://a", "http://b"]).act("q", "purge", dry_run=False)

    assert sent == ["http://a/queues/q/purge"]
