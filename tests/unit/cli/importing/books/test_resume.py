"""What an interrupted import settles, whatever interrupts it, and how a log is recognized."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import random
from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cli.http.receipts import Receipt
from cli.importing.books.journal import Journal
from cli.importing.parsing.rows import Fields
from cli.importing.reading.content import ContentHash
from cli.importing.reading.notes import Notes, Progress
from cli.importing.sending.lanes import BatchLimits
from cli.importing.sending.pipeline import send_log
from cli.importing.tally import Tally
from shared.errors import Unavailable
from tests.unit.cli.fake_services import InMemoryProducer, reader_of


class KeptLines:
    """The lines that were not accepted, in memory."""

    def __init__(self) -> None:
        self.raws: list[bytes | None] = []

    def add(self, raw: bytes | None, header: bytes) -> None:
        """See `notes.Rejected`."""
        self.raws.append(raw)


def log_of(lines: int, rng: random.Random) -> list[bytes]:
    """Lines of which some cannot be read, and some are rejected by the producer."""
    raws = []
    for n in range(lines):
        key = "x" * 300 if rng.random() < 0.1 else f"k{rng.randrange(9)}"
        raw = msgspec.json.encode({"key": key, "time": 1 + rng.randrange(99), "n": n})
        raws.append(b"nonsense %d" % n if rng.random() < 0.1 else raw)
    return raws


def number_of(raw: bytes) -> int:
    """The number of the line that became this fragment."""
    number: int = msgspec.json.decode(raw)["data"]["n"]
    return number


def run_once(
    raws: list[bytes], producer: InMemoryProducer, notes: Notes, fail_at: int, lanes: int, rng: random.Random
) -> list[bytes]:
    """One run, which fails at that request; the batches that were posted and not answered."""
    unanswered: list[bytes] = []
    client, requests = producer.client(), 0

    async def post(body: bytes) -> Receipt:
        nonlocal requests
        requests += 1
        unanswered.append(body)
        if requests < fail_at or rng.random() < 0.5:
            receipt = await client.post_fragments(body)
        if requests >= fail_at:
            raise Unavailable("interrupted")
        unanswered.remove(body)
        return receipt

    async def run() -> None:
        await send_log(
            reader_of(raws),
            "ndjson",
            Fields(key="key", time="time", unit="ms"),
            name="log",
            table=producer.table,
            post=post,
            lanes=lanes,
            limits=BatchLimits(fragments=7),
            notes=notes,
        )

    with contextlib.suppress(Unavailable):
        asyncio.run(run())
    return unanswered


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), streams=st.sampled_from([1, 5, 24]))
def test_only_what_was_in_flight_is_sent_again(
    seed: int, streams: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """At most one request per lane, however often an import is interrupted, and the counts are exact."""
    rng = random.Random(seed)
    raws, whole = log_of(150, rng), Tally()
    run_once(raws, InMemoryProducer(streams), Notes(Progress(tally=whole)), 10**6, 4, rng)
    producer, rejected, may_repeat = InMemoryProducer(streams), KeptLines(), Counter[int]()
    path = tmp_path_factory.mktemp("journal") / "journal"
    is_new, tally = True, Tally()
    for fail_at in [*(rng.randrange(1, 12) for _ in range(4)), 10**6]:
        lanes = rng.randrange(1, 6)
        journal = Journal(path, is_new=is_new)
        progress = (journal.read() or Progress()).started_anew()
        journal.append(progress)
        notes = Notes(progress, keep=journal.append, rejected=rejected)
        unanswered = run_once(raws, producer, notes, fail_at, lanes, rng)
        journal.close()
        assert len(unanswered) <= lanes
        may_repeat.update(number_of(raw) for body in unanswered for raw in body.split(b"\n"))
        tally, is_new = notes.tally, False

    stored = Counter(number_of(raw) for log in producer.logs.values() for raw in log)
    assert {n: count for n, count in stored.items() if count > 1 + may_repeat[n]} == {}
    assert (tally.lines, tally.parsed, tally.unparsed) == (whole.lines, whole.parsed, whole.unparsed)
    assert (tally.sent, tally.accepted, tally.rejected) == (whole.sent, whole.accepted, whole.rejected)
    assert (tally.bytes, tally.highest_time_ms) == (whole.bytes, whole.highest_time_ms)
    assert len(stored) == whole.accepted
    assert Counter(rejected.raws) == Counter(raw for raw in raws if b"nonsense" in raw or b"xxx" in raw)


@given(st.lists(st.binary(max_size=20), max_size=8), st.sets(st.integers(0, 80)))
def test_the_beginnings_of_a_log_do_not_depend_on_its_blocks(blocks: list[bytes], sizes: set[int]) -> None:
    """Each has the digest of just these bytes."""
    hashed, whole = ContentHash(sizes), b"".join(blocks)

    for block in blocks:
        hashed.update(block)

    expected = {
        (size, hashlib.blake2b(whole[:size], digest_size=16).hexdigest())
        for size in sizes
        if 0 < size <= len(whole)
    }
    assert {(one.size, one.digest) for one in hashed.beginnings if one.size} == expected
    assert hashed.content.size == len(whole)
