"""Silence is noticed in front: open sessions stand in the order of their last fragments, always."""

from __future__ import annotations

from services.consumer.core.commits.checkpoint import Checkpoint, _order_parked
from services.consumer.core.sessions.assembly import Assembler
from services.consumer.core.sessions.covered import CoveredKeys
from services.consumer.core.sessions.open_table import OpenTable
from services.consumer.core.sessions.state import OpenSession
from services.consumer.core.slices import at_once
from shared.model.group import GroupSettings
from shared.model.head import Head
from tests.reference import Rec

SETTINGS = GroupSettings(gap_ms=100, lateness_ms=30, idle_ms=150)


def parked(key: str, offset: int, last_a: int) -> OpenSession:
    """A session of one fragment as a checkpoint holds it."""
    session = OpenSession(key, offset, last_a, last_a, -1, -1)
    session.data, session.parked, session.pin = [b"{}"], 1, -1
    session.last_offset, session.last_a = offset, last_a
    return session


def fragment(offset: int, key: str, a: int) -> Rec:
    return Rec(offset, a, key.encode(), f'{{"key":"{key}","time":{a}}}'.encode())


def restored(sessions: list[OpenSession], *, safe_offset: int, position: int) -> Assembler:
    state = Assembler(SETTINGS, position=safe_offset, w=-1, a=1_000)
    found = Checkpoint(head=Head(epoch=1, seq=1, position=position, safe_offset=safe_offset))
    found.parked = OpenTable(sessions)
    at_once(_order_parked(found))
    state.restore(
        covered=CoveredKeys(SETTINGS.repeat_ms),
        parked=found.parked,
        parked_from=found.parked_from,
        state_bytes=found.parked_bytes,
        position=position,
    )
    return state


def closed_keys(state: Assembler) -> list[str]:
    return [closed.session.key for closed in state.close_due()]


def test_parked_sessions_are_noticed_whatever_their_order_in_the_checkpoint() -> None:
    """The session that has been silent for longer closes, although it was written after the other."""
    state = restored([parked("late", 5, 1_000), parked("early", 3, 900)], safe_offset=6, position=6)

    state.feed([Rec(6, 1_055, None, b"{}")])

    assert closed_keys(state) == ["early"]


def test_a_replayed_session_is_noticed_before_a_parked_one_that_was_later() -> None:
    """Even when the batch that ends the replay continues beyond it."""
    state = restored([parked("parked", 7, 1_010)], safe_offset=6, position=8)

    state.feed([fragment(6, "replayed", 1_000), fragment(7, "parked", 1_010), Rec(8, 1_155, None, b"{}")])

    assert closed_keys(state) == ["replayed"]


def test_nothing_is_noticed_while_replaying() -> None:
    """Below the checkpoint's position nothing closes."""
    state = restored([parked("k", 3, 800)], safe_offset=6, position=9)

    state.feed([fragment(6, "other", 1_500)])

    assert closed_keys(state) == []
    assert state.is_replaying
