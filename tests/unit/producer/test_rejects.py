"""What the door passes to the rejects, and that it never delays or changes an answer."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from services.producer.http.access.grants import UNNAMED
from services.producer.http.access.keys import WriteKeys, parse_keys
from shared.model.rejects import MAX_KEPT_BYTES, Reject
from tests.fakes.rejects import InMemoryRejects
from tests.rejects_contract import SHARE_BYTES, RejectsContract, RejectsWorld
from tests.unit.producer.face import JSON, NDJSON, TABLE, Producer


class InMemoryWorld(RejectsWorld):
    """The twin, which needs no waiting."""

    def __init__(self) -> None:
        self.rejects: InMemoryRejects = InMemoryRejects(max_waiting_bytes=100_000, share_bytes=SHARE_BYTES)
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


@pytest.fixture
def producer() -> Producer:
    return Producer()


@pytest.mark.parametrize(
    ("body", "headers", "status", "kept"),
    [
        (
            b'{"key":"a"}\n {"key": ""} \n{"key":"b"}\nnonsense',
            NDJSON,
            200,
            [(1, "key", b'{"key": ""}'), (3, "malformed", b"nonsense")],
        ),
        (b'[ {"key" :\n1}, 7 ]', JSON, 422, [(0, "invalid", b'{"key" :\n1}'), (1, "invalid", b"7")]),
    ],
)
async def test_each_rejected_fragment_is_kept_with_its_own_bytes(
    producer: Producer, body: bytes, headers: dict[str, str], status: int, kept: list[tuple[int, str, bytes]]
) -> None:
    """With the index, reason and detail of the answer; whether other fragments were accepted or not."""
    answer = await producer.post(body, headers)

    assert answer.status_code == status
    assert [(one.index, one.reason, one.value) for one in producer.rejects.kept] == kept
    assert answer.json()["rejected"] == [
        {"index": one.index, "reason": one.reason, "detail": one.detail} for one in producer.rejects.kept
    ]
    assert answer.json()["accepted"] == len(producer.stored)


@pytest.mark.parametrize("body", [b'[{"key":"a"},{}]', b"[{}]", b"nonsense"])
async def test_rejects_count_for_the_name_of_their_write_key(body: bytes) -> None:
    """So that no writer can use up what another one's rejects need; without keys the name is empty."""
    producer = Producer(WriteKeys(parse_keys(["k1 name=page", "k2"])))

    for key in ("k1", "k2"):
        await producer.post(body, JSON | {"authorization": f"Bearer {key}"})
    await (anybody := Producer()).post(body)

    assert (producer.rejects.writers, anybody.rejects.writers) == (["page", UNNAMED], [""])


@pytest.mark.parametrize("body", [b'[{"key":"a"}', b"nonsense", b'{"key":"\xff"}', b""])
async def test_an_unreadable_body_is_one_reject(producer: Producer, body: bytes) -> None:
    """400: the whole body, with the reason `unreadable`."""
    answer = await producer.post(body)

    assert answer.status_code == 400
    (reject,) = producer.rejects.kept
    assert (reject.reason, reject.value, reject.index) == ("unreadable", body, 0)
    assert reject.detail == answer.json()["detail"]


async def test_an_unreadable_body_is_cut(producer: Producer) -> None:
    """Of a megabyte of nonsense 32 KB are kept."""
    await producer.post(b"[" * 1_000_000)

    (reject,) = producer.rejects.kept
    assert (len(reject.value), reject.size, reject.is_cut) == (MAX_KEPT_BYTES, 1_000_000, True)
    assert producer.metric("baton_rejects_cut_total") == 1


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b'{"key":"a"}', JSON, 200),
        (b"[]", JSON, 200),
        (b" " * (1024 * 1024 + 1), JSON, 413),
        (b'{"key":"a"}', {"content-type": "text/html"}, 415),
    ],
)
async def test_nothing_else_is_kept(
    producer: Producer, body: bytes, headers: dict[str, str], status: int
) -> None:
    """Neither accepted fragments nor bodies that were not read."""
    answer = await producer.post(body, headers)

    assert answer.status_code == status
    assert producer.rejects.kept == []


async def test_answers_do_not_depend_on_whether_rejects_can_be_kept(producer: Producer) -> None:
    """Rejects are dropped and counted if the topic is unavailable; the accepted fragment is stored."""
    body = b'{"key":"a"}\n{"key":"' + b"k" * 30_000 + b'"}'
    before = await producer.post(body, NDJSON)
    producer.rejects.is_away = True

    answers = [await producer.post(body, NDJSON) for _ in range(10)]

    assert {(answer.status_code, answer.content) for answer in answers} == {(200, before.content)}
    assert len(producer.stored) == 11
    assert producer.metric("baton_rejects_stored_total") == 1
    assert producer.metric("baton_rejects_dropped_total") == 7


async def test_rejects_of_a_request_that_must_be_sent_again_are_not_kept_yet(producer: Producer) -> None:
    """After a 503 for everything the client sends everything again; only then there is one reject."""
    producer.sink.down = True
    first = await producer.post(b'[{"key":"a"},{}]')
    producer.sink.down = False

    second = await producer.post(b'[{"key":"a"},{}]')

    assert (first.status_code, second.status_code) == (503, 200)
    assert [one.value for one in producer.rejects.kept] == [b"{}"]


async def test_rejects_of_a_partly_stored_request_are_kept(producer: Producer) -> None:
    """The 503 lists what is not stored, and the client sends only that again."""
    producer.sink.mute.add(TABLE.stream_for(b"visitor-1"))

    answer = await producer.post(b'[{"key":"visitor-1"},{},{"key":"199.72.81.55"}]')

    assert (answer.status_code, answer.json()["unstored"]) == (503, [0])
    assert [one.index for one in producer.rejects.kept] == [1]
