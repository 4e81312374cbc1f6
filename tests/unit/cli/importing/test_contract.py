"""The importer against the producer's real HTTP interface, so that both agree on every response."""

from __future__ import annotations

import contextlib
import json
import random

import httpx
import pytest

from cli.http.client import BatonClient
from cli.http.requests import NotAllowed, Requests
from cli.importing.parsing.rows import Fields
from cli.importing.reading.notes import Notes, Progress
from cli.importing.sending.lanes import BatchLimits
from cli.importing.sending.pipeline import send_log
from cli.importing.tally import Tally
from services.producer.app import create_face
from services.producer.http.access.keys import WriteKeys, parse_keys
from services.producer.http.face import ProducerFace
from services.producer.http.metrics import ProducerMetrics
from services.producer.settings import ProducerSettings
from shared.model.routing import initial_table
from tests.fakes.http import FaceTransport
from tests.fakes.rejects import InMemoryRejects
from tests.fakes.sink import InMemoryFragmentSink
from tests.unit.cli.fake_services import reader_of

TABLE = initial_table(3)


def face_of(
    sink: InMemoryFragmentSink, settings: ProducerSettings, keys: WriteKeys | None = None
) -> ProducerFace:
    """The producer's real HTTP interface over a sink in memory."""
    return create_face(
        settings=settings,
        sink=sink,
        rejects=InMemoryRejects(),
        table=lambda: TABLE,
        table_json=TABLE.encode,
        complaints=list,
        metrics=ProducerMetrics(),
        keys=keys,
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [("k", "lacks the scope `mark`"), ("other write+mark", "not, or no longer"), ("k write+mark", "")],
)
async def test_importer_and_producer_agree_on_what_a_key_allows(line: str, words: str) -> None:
    """The question writes nothing, whether or not the key may write markers."""
    sink = InMemoryFragmentSink(TABLE.count)
    http = httpx.AsyncClient(
        transport=FaceTransport(face_of(sink, ProducerSettings(), WriteKeys(parse_keys([line])))),
        base_url="http://localhost",
        headers={"authorization": "Bearer k"},
    )
    client = BatonClient(Requests(http, patience_s=0))

    with pytest.raises(NotAllowed, match=words) if words else contextlib.nullcontext():
        await client.check_markers()

    assert list(map(list, sink.logs)) == [[]] * TABLE.count


async def test_importer_and_producer_agree_on_every_answer() -> None:
    """Partial and complete 503, rejected fragments, requests that are too large, table and markers."""
    sink = InMemoryFragmentSink(TABLE.count)
    face = face_of(sink, ProducerSettings(max_request_bytes=900, max_fragment_bytes=750))
    faults = [lambda: sink.mute.add(1), lambda: setattr(sink, "down", True)]

    async def sleep(_: float) -> None:  # the next fault on each retry, then none
        sink.mute.clear()
        sink.down = False
        if faults:
            faults.pop(0)()

    sink.down = True
    raws = [json.dumps({"key": f"k{n % 5}", "time": n, "n": n}).encode() for n in range(40)]
    raws[10] = json.dumps({"key": "x" * 300, "time": 1}).encode()
    raws[20] = json.dumps({"key": "k0", "time": 1, "pad": "x" * 740}).encode()
    raws[30] = json.dumps({"key": "k0", "time": 1, "pad": "x" * 2000}).encode()
    http = httpx.AsyncClient(transport=FaceTransport(face), base_url="http://localhost")
    client = BatonClient(Requests(http, patience_s=1e9, sleep=sleep, rng=random.Random(0)))
    tally = Tally()

    await send_log(
        reader_of(raws),
        "ndjson",
        Fields(key="key", time="time", unit="ms"),
        name="log",
        table=(await client.table())[0],
        post=client.post_fragments,
        lanes=1,
        limits=BatchLimits(fragments=8),
        notes=Notes(Progress(tally=tally)),
    )
    markers = await client.post_markers(39)

    assert (tally.sent, tally.accepted, tally.rejected) == (40, 37, 3)
    assert {reason: found.count for reason, found in tally.reasons.items()} == {"key": 1, "size": 2}
    stored = {json.loads(value)["data"]["n"] for log in sink.logs for key, value in log if key}
    assert stored == set(range(40)) - {10, 20, 30}
    assert client.retries == 3
    assert not faults
    assert [place.offset for place in markers] == [len(log) - 1 for log in sink.logs]
