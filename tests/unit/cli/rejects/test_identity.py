"""A reject has one id, is listed once, and ends when it is dismissed, however often it is replayed."""

from __future__ import annotations

import json

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.importing.sending.lanes import BatchLimits
from cli.kafka.rejects import StoredReject
from cli.rejects.identity import posted_of
from cli.rejects.listing import Listing
from cli.rejects.replay import Replayed, read_open, replay, with_id
from cli.rejects.single import matching
from shared.errors import NotFound
from shared.model.rejects import Reject
from tests.fakes.rejects import InMemoryRejectedLog, reject_of
from tests.unit.cli.fake_services import client_of, no_sleep

VALUES = [b'{"key":""}', b'{"id":"mine", "key":""}', b'{"key":\n""}', b" {nonsense", b"{}"]


def reject(value: bytes, reason: str = "key") -> Reject:
    return reject_of(value, reason=reason, detail="why", index=0)


def stored(value: bytes, offset: int = 7) -> StoredReject:
    return StoredReject(partition=0, offset=offset, time_ms=1_000, reject=reject(value))


class Refusing:
    """A producer that rejects everything again, into the log; `sent` has what it got."""

    def __init__(self, log: InMemoryRejectedLog, reason: str = "key") -> None:
        self._log = log
        self._reason = reason
        self.sent: list[bytes] = []

    async def answer(self, request: httpx.Request) -> httpx.Response:
        """A receipt that rejects every fragment."""
        is_lines = request.headers["content-type"] == "application/x-ndjson"
        values = request.content.split(b"\n") if is_lines else [request.content]
        self.sent += values
        for value in values:
            # a producer stores an item without the space around it
            self._log.append(0, reject(value.strip(), self._reason))
        rejected = [{"index": index, "reason": self._reason, "detail": "why"} for index in range(len(values))]
        return httpx.Response(422, json={"accepted": 0, "rejected": rejected})

    async def replay(self, reason: str = "key") -> Replayed:
        """Replays the rejects with the reason."""
        replayed = Replayed()
        self._log.open()
        client = client_of(self.answer, sleep=no_sleep)
        await replay(self._log, client, reason, limits=BatchLimits(), replayed=replayed)
        self._log.open()
        return replayed


async def listed(log: InMemoryRejectedLog) -> list[tuple[str, str]]:
    """Id and reason of each listed reject."""
    log.open()
    listing = Listing(await read_open(log), limit=99)
    for partition in log.bounds:
        async for page in log.read(partition, 0):
            listing.add(page)
    assert listing.total == len(listing.rows())
    assert all(row["size"] == len(VALUES[0]) for row in listing.rows() if row["beginning"] == '{"key":""}')
    return [(row["id"], row["reason"]) for row in listing.rows()]


async def test_rejects_that_no_fix_helps_do_not_multiply() -> None:
    """After five replays each is listed once, under its first place, and is sent with the same bytes."""
    log = InMemoryRejectedLog([[reject(value) for value in VALUES]])
    producer = Refusing(log)

    for _ in range(5):
        replayed = await producer.replay()
        assert (replayed.found, replayed.tally.rejected) == (len(VALUES), len(VALUES))

    assert sorted(await listed(log)) == [(f"0/{n}", "key") for n in range(len(VALUES))]
    first, *others = (producer.sent[at : at + len(VALUES)] for at in range(0, 25, len(VALUES)))
    assert all([value.strip() for value in sent] == [value.strip() for value in first] for sent in others)
    assert [json.loads(value)["id"] for value in first[:3]] == ["rejected/0/0", "mine", "rejected/0/2"]


async def test_a_reject_is_listed_and_replayed_under_its_last_reason() -> None:
    """Its earlier record does not count any more, even for a replay from the start."""
    records = [reject(b'{"key":""}'), reject(with_id(b'{"key":""}', "rejected/0/0") or b"", "time")]
    log = InMemoryRejectedLog([records])

    by_first, by_last = [
        await Refusing(InMemoryRejectedLog([records])).replay(one) for one in ("key", "time")
    ]

    assert await listed(log) == [("0/0", "time")]
    assert (by_first.found, by_last.found) == (0, 1)


async def test_a_dismissed_reject_is_neither_listed_nor_replayed() -> None:
    """Whichever of its records the operator saw; the exit code of a replay no longer depends on it."""
    log = InMemoryRejectedLog([[reject(b'{"key":""}'), reject(b'{"key":"", "n":1}')]])
    await Refusing(log).replay()

    (one, *_) = await matching(log, ["0/0"])
    log.dismiss(posted_of(one).identity)
    replayed = await Refusing(log).replay()

    assert await listed(log) == [("0/1", "key")]
    assert (replayed.found, replayed.dismissed) == (1, 1)
    assert len(await matching(log, ["0/0"])) == 2
    with pytest.raises(NotFound):
        await matching(log, ["0/99"])


async def test_a_client_cannot_hide_another_reject_behind_its_own() -> None:
    """A posted text with the id of a reject is a reject of its own, unless it is that very fragment."""
    log = InMemoryRejectedLog([[reject(b'{"key":"", "n":1}')]])
    log.append(0, reject(b'{"id":"rejected/0/0","key":"", "n":2}'))
    producer = Refusing(log)

    replayed = await producer.replay()

    assert replayed.found == 2
    assert len(await listed(log)) == 2


@given(
    value=st.sampled_from([b"{", b"\xef\xbb\xbf {", b"\n{ "]).flatmap(
        lambda start: st.binary().map(lambda rest: start + rest)
    ),
    times=st.integers(1, 3),
)
def test_what_replays_inserted_is_removed_again(value: bytes, times: int) -> None:
    """The id is the first place, and the bytes are those that were first posted."""
    if posted_of(stored(value)).id != "0/7":
        return  # it begins like a replayed one
    sent = value
    for number in reversed(range(times)):
        # an earlier version inserted one more id with each replay, each before the others
        sent = with_id(sent, f"rejected/1/{7 if number == times - 1 else 90 + number}") or b""

    found = posted_of(stored(sent, offset=200))

    assert (found.id, found.value) == ("1/7", value)
