"""What the door gives to the rejects, and that nothing of it delays or changes an answer."""

from __future__ import annotations

from collections.abc import Sequence

import httpx
import pytest

from services.producer.app import create_app
from services.producer.http.metrics import ProducerMetrics
from services.producer.settings import ProducerSettings
from shared.model.rejects import MAX_KEPT_BYTES, Reject
from shared.model.routing import initial_table
from tests.fakes.rejects import InMemoryRejects
from tests.fakes.sink import InMemoryFragmentSink
from tests.rejects_contract import RejectsContract, RejectsWorld

TABLE = initial_table(4)
JSON = "application/json"
NDJSON = "application/x-ndjson"


class InMemoryWorld(RejectsWorld):
    """The twin, which needs no waiting for."""

    def __init__(self) -> None:
        self.rejects: InMemoryRejects = InMemoryRejects(max_waiting_bytes=100_000)
        self.rejects.is_away = True

    async def come_back(self) -> None:
        self.rejects.is_away = False
        self.rejects.flush()

    async def kept(self, count: int) -> Sequence[Reject]:
        assert len(self.rejects.kept) == count
        return self.rejects.kept


class TestInMemoryRejects(RejectsContract):
    """The contract on the twin."""

    @pytest.fixture
    def world(self) -> InMemoryWorld:
        return InMemoryWorld()


class Producer:
    """A door on a sink and rejects in memory."""

    def __init__(self) -> None:
        self.sink = InMemoryFragmentSink(TABLE.count)
        self.rejects = InMemoryRejects(max_waiting_bytes=100_000)
        self.metrics = ProducerMetrics()
        self._door = create_app(
            settings=ProducerSettings(),
            sink=self.sink,
            rejects=self.rejects,
            table=lambda: TABLE,
            table_json=TABLE.encode,
            complaints=list,
            metrics=self.metrics,
        )

    async def post(self, body: bytes, content_type: str = JSON) -> httpx.Response:
        """The answer to a POST of the body."""
        transport = httpx.ASGITransport(self._door)
        async with httpx.AsyncClient(transport=transport, base_url="http://producer") as client:
            return await client.post("/fragments", content=body, headers={"content-type": content_type})

    def metric(self, name: str) -> float | None:
        """A counter as `/metrics` shows it."""
        return self.metrics.registry.get_sample_value(f"{name}_total")


@pytest.fixture
def producer() -> Producer:
    return Producer()


async def test_each_refused_fragment_is_kept_with_its_own_bytes(producer: Producer) -> None:
    """In the order of the request, with the index that the answer names; what was accepted is not."""
    answer = await producer.post(b'{"key":"a"}\n {"key": ""} \n{"key":"b"}\nnonsense', NDJSON)

    assert answer.status_code == 200
    assert [(one.index, one.reason, one.value) for one in producer.rejects.kept] == [
        (1, "key", b'{"key": ""}'),
        (3, "malformed", b"nonsense"),
    ]
    assert [(one.reason, one.detail) for one in producer.rejects.kept] == [
        (item["reason"], item["detail"]) for item in answer.json()["rejected"]
    ]


async def test_fragments_of_which_none_is_acceptable_are_kept_too(producer: Producer) -> None:
    """A 422 is no reason to lose them; elements of an array keep their own spaces."""
    answer = await producer.post(b'[ {"key" :\n1}, 7 ]')

    assert answer.status_code == 422
    assert [(one.reason, one.value) for one in producer.rejects.kept] == [
        ("invalid", b'{"key" :\n1}'),
        ("invalid", b"7"),
    ]


@pytest.mark.parametrize("body", [b'[{"key":"a"}', b"nonsense", b'{"key":"\xff"}', b""])
async def test_a_body_that_is_no_json_is_one_reject(producer: Producer, body: bytes) -> None:
    """400: the whole of it, reason `unreadable`."""
    answer = await producer.post(body)

    assert answer.status_code == 400
    (reject,) = producer.rejects.kept
    assert (reject.reason, reject.value, reject.index) == ("unreadable", body, 0)
    assert reject.detail == answer.json()["detail"]


async def test_an_unreadable_body_is_cut(producer: Producer) -> None:
    """A megabyte of nonsense takes 32 KB."""
    await producer.post(b"[" * 1_000_000)

    (reject,) = producer.rejects.kept
    assert (len(reject.value), reject.size, reject.is_cut) == (MAX_KEPT_BYTES, 1_000_000, True)
    assert producer.metric("baton_rejects_cut") == 1


@pytest.mark.parametrize(
    ("body", "content_type", "status"),
    [
        (b'{"key":"a"}', JSON, 200),
        (b"[]", JSON, 200),
        (b" " * (1024 * 1024 + 1), JSON, 413),
        (b'{"key":"a"}', "text/html", 415),
    ],
)
async def test_nothing_else_is_kept(producer: Producer, body: bytes, content_type: str, status: int) -> None:
    """Neither what was accepted nor what was not even read."""
    answer = await producer.post(body, content_type)

    assert answer.status_code == status
    assert producer.rejects.kept == []


async def test_answers_are_the_same_when_rejects_cannot_be_kept(producer: Producer) -> None:
    """Dropped and counted, whatever the topic does; the accepted fragment is stored."""
    body = b'{"key":"a"}\n{"key":"' + b"k" * 30_000 + b'"}'
    before = await producer.post(body, NDJSON)
    producer.rejects.is_away = True

    answers = [await producer.post(body, NDJSON) for _ in range(10)]

    assert {(answer.status_code, answer.content) for answer in answers} == {(200, before.content)}
    assert sum(map(len, producer.sink.logs)) == 11
    assert producer.metric("baton_rejects_stored") == 1
    assert producer.metric("baton_rejects_dropped") == 7


async def test_what_a_client_has_to_send_again_is_not_kept_yet(producer: Producer) -> None:
    """503 for all: the client sends it all again, is refused again, and that is one reject then."""
    producer.sink.down = True
    first = await producer.post(b'[{"key":"a"},{}]')
    producer.sink.down = False

    second = await producer.post(b'[{"key":"a"},{}]')

    assert (first.status_code, second.status_code) == (503, 200)
    assert [one.value for one in producer.rejects.kept] == [b"{}"]


async def test_what_was_refused_beside_what_was_partly_stored_is_kept(producer: Producer) -> None:
    """503 that names what was not stored: only that is sent again."""
    producer.sink.mute.add(TABLE.stream_for(b"a"))
    keys = [b"a", next(b"%d" % n for n in range(99) if TABLE.stream_for(b"%d" % n) not in producer.sink.mute)]

    answer = await producer.post(b'[{"key":"%b"},{},{"key":"%b"}]' % (keys[0], keys[1]))

    assert (answer.status_code, answer.json()["unstored"]) == (503, [0])
    assert [one.index for one in producer.rejects.kept] == [1]
