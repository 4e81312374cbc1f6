"""Messages of a handover in their envelopes: the two must agree, and a later version may add fields."""

from __future__ import annotations

import msgspec
import pytest

from services.consumer.core.handover.rules import BundleRequest, Completion, Offer
from services.consumer.handover.messages import envelope_for, parse_message
from shared.errors import BundleRejected
from shared.service.signing import Envelope

COMPLETION = Completion(
    group="default",
    stream=3,
    epoch=7,
    donor="a",
    recipient="b",
    base_digest="00",
    digest="11",
    copy_ms=1.5,
    stopped_at_ms=5,
)
ENVELOPE = envelope_for(COMPLETION, b"body", None, namespace="", at_ms=1, nonce="n")


def with_message(**changes: object) -> Envelope:
    """The envelope around a message with other fields."""
    fields = msgspec.to_builtins(COMPLETION) | changes
    return msgspec.structs.replace(ENVELOPE, message=msgspec.Raw(msgspec.json.encode(fields)))


def test_a_message_is_read_from_its_envelope() -> None:
    """Fields that a later version adds are ignored."""
    assert parse_message(ENVELOPE, Completion) == COMPLETION
    assert parse_message(with_message(added_later=12), Completion) == COMPLETION


def test_a_message_of_another_kind_is_rejected() -> None:
    """So a delta cannot be sent to the route of a copy."""
    with pytest.raises(BundleRejected, match="does not contain a valid Offer"):
        parse_message(ENVELOPE, Offer)
    with pytest.raises(BundleRejected, match="does not contain a valid BundleRequest"):
        parse_message(ENVELOPE, BundleRequest)


@pytest.mark.parametrize(
    "changes",
    [{"stream": 4}, {"epoch": 8}, {"donor": "c"}, {"recipient": "c"}, {"group": "other"}],
)
def test_a_message_that_contradicts_its_envelope_is_rejected(changes: dict[str, object]) -> None:
    """The routes check the envelope, and the hint store acts on the message."""
    with pytest.raises(BundleRejected, match="does not fit its message"):
        parse_message(with_message(**changes), Completion)
