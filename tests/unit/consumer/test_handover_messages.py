"""Messages of a handover between members of different versions, as in a rolling update."""

from __future__ import annotations

import base64

import msgspec

from services.consumer.core.handover.rules import Completion
from services.consumer.handover.messages import header_for, parse_header

COMPLETION = Completion(
    group="default",
    stream=3,
    epoch=7,
    donor="a",
    head_epoch=7,
    seq=41,
    base_position=100,
    base_digest="00",
    position=120,
    digest="11",
    why="join",
    copy_ms=1.5,
    stopped_at_ms=5,
)


class _OlderCompletion(Completion, frozen=True, kw_only=True):
    """As older members read it (docs/adr/0022); -1: the donor does not say."""

    node_version: int = -1


def test_an_older_donors_delta_is_read() -> None:
    """Its `node_version` is ignored."""
    fields = msgspec.to_builtins(COMPLETION) | {"node_version": 12}
    header = base64.urlsafe_b64encode(msgspec.json.encode(fields)).decode()

    assert parse_header(header, Completion) == COMPLETION


def test_an_older_recipient_reads_the_delta() -> None:
    """Without the field it expects no release, and reads the stream's node before it claims."""
    read = msgspec.json.decode(base64.urlsafe_b64decode(header_for(COMPLETION)), type=_OlderCompletion)

    assert read.node_version == -1
    assert read.position == COMPLETION.position
