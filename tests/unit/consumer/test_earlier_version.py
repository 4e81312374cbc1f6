"""What members of an earlier version have written and sent is read: captured bytes of its commit.

`earlier_version.json` has the messages and bodies of one handover, a head, and the checkpoint's records.
"""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest

from services.consumer.core.commits.checkpoint import folding_records
from services.consumer.core.commits.stream import Stream
from services.consumer.core.handover.rules import Completion, Offer
from services.consumer.core.slices import at_once
from services.consumer.handover.messages import parse_message
from shared.errors import BundleRejected
from shared.model.head import Head, parse_head
from shared.service.signing import Envelope
from tests.logs import SETTINGS, Owner, Store, random_log
from tests.unit.consumer.core.test_bundle import LIMITS, state_of
from tests.unit.consumer.test_hint_store import STREAM, HintWorld

CAPTURED: dict[str, Any] = json.loads((Path(__file__).parent / "earlier_version.json").read_text())


def envelope(name: str, **changes: str) -> Envelope:
    """The captured envelope, with these fields of it changed."""
    return msgspec.structs.replace(msgspec.json.decode(CAPTURED[name], type=Envelope), **changes)


def body(name: str) -> bytes:
    """The captured body."""
    return base64.b64decode(CAPTURED[name])


def loaded(head: Head, records: list[tuple[int, bytes]]) -> dict[str, Any]:
    """What a new owner continues from."""
    checkpoint = at_once(folding_records(head, records, SETTINGS.repeat_ms))
    stream = Stream(
        group="g", stream=0, epoch=9, settings=SETTINGS, limits=LIMITS, checkpoint=checkpoint, now_s=0.0
    )
    return state_of(stream)


def written_earlier(state: dict[str, Any], records: int) -> dict[str, Any]:
    """The state after that many checkpoint records of that version, which lack some of a head's fields."""
    written, whole = state["writer"]
    lacking = len(msgspec.msgpack.encode({"oldest": 0, "silent_to": 0, "closing": -1})[1:])
    return state | {"writer": (written - records * lacking, whole)}


def test_a_stream_arrives_from_a_member_of_an_earlier_version() -> None:
    """Its offer says nothing of its other streams, and its messages say more that is not needed."""
    world = HintWorld()
    world.read("k", "new", "k")
    world.read("k", "later")
    world.donor.commit()
    world.read("last")

    offer = parse_message(envelope("offer"), Offer)
    at_once(world.hint_store.receiving_copy(offer, body("copy")))
    at_once(
        world.hint_store.receiving_delta(parse_message(envelope("completion"), Completion), body("delta"))
    )

    (hint,) = world.hint_store.take(STREAM)
    assert (hint.why, offer.left, offer.within_ms) == ("a reason", 1, 0)
    expected = state_of(world.donor.stream)
    expected["head"] = msgspec.structs.replace(expected["head"], oldest=None, silent_to=0)
    assert state_of(hint.state) == written_earlier(expected, 1)


@pytest.mark.parametrize(
    ("name", "kind", "target"),
    [
        ("completion", Completion, "/handover/g/3/commit?epoch=8&seq=2"),
        ("completion", Completion, "/handover/g/3?epoch=7&seq=2"),
        ("offer", Offer, "/handover/g/3?epoch=7&seq=2"),
    ],
)
def test_no_other_line_passes_for_one_of_an_earlier_version(name: str, kind: Any, target: str) -> None:
    """Its number of the head is the only difference."""
    with pytest.raises(BundleRejected, match="does not fit its message"):
        parse_message(envelope(name, target=target), kind)


def test_a_checkpoint_of_an_earlier_version_is_read() -> None:
    """Head, parked sessions, remembered ids: what this version would have written of the same log."""
    rng = random.Random(6)
    owner = Owner(random_log(rng)[:40], rng, Store(), LIMITS)
    while not owner.run():
        owner.succeed()
    records = sorted(owner.store.records.items())

    head = parse_head(owner.stream.head.safe_offset, CAPTURED["head"])
    found = [(int(offset), base64.b64decode(raw)) for offset, raw in CAPTURED["checkpoint"].items()]

    # that version did not write `oldest` and `silent_to`
    assert (head.oldest, owner.stream.head.oldest) == (None, 30)
    assert head == msgspec.structs.replace(owner.stream.head, oldest=None, silent_to=0)
    own = [pair for pair in records if pair[0] >= head.checkpoint_from]
    assert loaded(head, found) == written_earlier(loaded(head, own), len(own))
