"""Where a group starts, and which sessions of others are current in it."""

from __future__ import annotations

import json

import pytest

from shared.errors import InvalidInput
from shared.model.head import Head
from shared.model.names import Names
from shared.model.start import (
    Cut,
    GroupStart,
    cuts_of,
    latest_start,
    parse_aliases,
    parse_start,
    reaching_cuts,
)
from shared.zookeeper.group_chain import read_chain
from tests.fakes.coordinator import InMemoryZooKeeper, ZnodeStore


def head(position: int, oldest: int | None) -> Head:
    return Head(epoch=1, seq=1, position=position, safe_offset=0, oldest=oldest)


def test_a_start_is_stored_as_the_protocol_says() -> None:
    """Streams are keys of JSON; null is a log made anew; numbers of logs are left out where all are 0."""
    start = GroupStart(follows="default", offsets={0: 1200, 1: None})

    assert json.loads(start.encode()) == {"follows": "default", "offsets": {"0": 1200, "1": None}}
    assert parse_start(start.encode()) == start
    numbered = GroupStart(follows=None, offsets={3: 0}, logs={3: 52})
    assert parse_start(numbered.encode()) == numbered


@pytest.mark.parametrize("raw", [b"", b"[]", b'{"follows": "a"}', b'{"follows": "a", "offsets": {"0": -1}}'])
def test_an_unreadable_start_is_refused(raw: bytes) -> None:
    """Nobody may begin where it cannot be known."""
    with pytest.raises(InvalidInput, match="cannot be read"):
        parse_start(raw)


def test_aliases_are_one_object_and_none_without_data() -> None:
    """Alias → group."""
    assert (parse_aliases(b""), parse_aliases(b'{"a": "b"}')) == ({}, {"a": "b"})
    with pytest.raises(InvalidInput, match="cannot be read"):
        parse_aliases(b"[]")


def test_beyond_a_log_made_anew_the_cuts_count_anew() -> None:
    """Its sessions are all complete, whatever starts on the new log; numbers of logs travel with the cuts."""
    chain = [
        GroupStart(follows="c", offsets={0: 5}),
        GroupStart(follows="b", offsets={0: None}),
        GroupStart(follows="a", offsets={0: 70}, logs={0: 9}),
        GroupStart(follows=None, offsets={0: 3}),
    ]

    assert cuts_of(chain, 0) == [Cut("c", 5), Cut("b", None), Cut("a", 70, 9)]
    with pytest.raises(InvalidInput, match="no offset of stream 1"):
        cuts_of(chain, 1)


def test_sessions_of_a_log_that_is_gone_reach_no_start() -> None:
    """Neither of the group that lost it, nor of those that it follows: their offsets mean other records."""
    chain = [
        GroupStart(follows="c", offsets={0: 5}),
        GroupStart(follows="b", offsets={0: None}),
        GroupStart(follows="a", offsets={0: 70}),
    ]

    assert reaching_cuts(chain, 0) == [Cut("c", 5)]
    assert reaching_cuts(chain[1:], 0) == []


def test_beyond_a_group_that_was_started_over_the_cuts_count_anew() -> None:
    """Its own start is an offset of a log before the one on which the next group starts."""
    chain = [
        GroupStart(follows="b", offsets={0: 50}, logs={0: 52}),
        GroupStart(follows="a", offsets={0: 1200}),
    ]

    assert cuts_of(chain, 0) == [Cut("b", 50, 52), Cut("a", 1200)]
    assert reaching_cuts(chain, 0) == [Cut("b", 50, 52)]


@pytest.mark.parametrize(
    ("cut", "first_offset", "log", "is_current"),
    [
        (Cut("a", 70), 69, 0, True),
        (Cut("a", 70), 70, 0, False),
        (Cut("a", None), 10**9, 0, True),
        (Cut("a", 70, 52), 10**9, 0, True),
        (Cut("a", None, 52), 0, 53, False),
        (Cut("a", 70, 52), 69, 52, True),
    ],
)
def test_current_is_what_began_below_the_cut_or_in_an_earlier_log(
    cut: Cut, first_offset: int, log: int, is_current: bool
) -> None:
    """A later log was begun after the start was chosen."""
    assert cut.holds(first_offset, log) is is_current


def test_a_start_is_at_most_where_everything_before_is_delivered() -> None:
    """The oldest open session, or the position; without a head the followed group's own start."""
    assert [latest_start(head(9, 4), None), latest_start(head(9, -1), 3)] == [4, 9]
    assert [latest_start(None, None), latest_start(None, 3)] == [0, 3]
    with pytest.raises(InvalidInput, match="did not say what is open"):
        latest_start(head(9, None), None)


async def test_a_circle_of_groups_is_refused() -> None:
    """It cannot come from control; a member must not read for ever."""
    znodes, names = InMemoryZooKeeper(ZnodeStore()), Names()
    for group, follows in (("a", "b"), ("b", "a")):
        await znodes.make_path(names.group(group))
        await znodes.create(names.start(group), GroupStart(follows=follows, offsets={}).encode())

    with pytest.raises(InvalidInput, match="follows more than"):
        await read_chain(znodes, names, "a")
