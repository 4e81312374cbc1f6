"""How open streams are shared among callers: nobody is locked out, and nobody gets more for coming first."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from services.control.live.feed.seats import Seat, Seats

MOST = 12


def test_a_caller_alone_has_every_seat() -> None:
    """A share is not reserved for somebody who may never come."""
    seats = Seats(MOST)

    taken = [seats.take("ann") for _ in range(MOST)]

    assert not any(seat.is_lost for seat in taken)
    assert not seats.has_room("ann")


def test_a_late_caller_gets_as_many_as_the_others() -> None:
    """From the newest pages of whoever has the most; pages that have been open for long stay."""
    seats = Seats(MOST)
    anns = [seats.take("ann") for _ in range(MOST)]

    bens = []
    while seats.has_room("ben"):
        bens.append(seats.take("ben"))

    assert [seat.is_lost for seat in anns] == [False] * 6 + [True] * 6
    assert [seat.is_lost for seat in bens] == [False] * 6


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.booleans()), max_size=120))
def test_whatever_comes_and_goes_all_seats_are_shared_fairly(steps: list[tuple[str, bool]]) -> None:
    """There are never too many, a seat that `has_room` promised is kept, and whoever asks in vain holds
    no less than anybody else, give or take one.
    """
    seats, held = Seats(MOST), list[Seat]()

    for holder, comes in steps:
        own = [seat for seat in held if seat.holder == holder]
        if comes and seats.has_room(holder):
            held.append(seats.take(holder))
            assert not held[-1].is_lost
        elif comes:
            most = max(Counter(seat.holder for seat in held).values())
            assert (len(held), most <= len(own) + 1) == (MOST, True)
        elif own:
            seats.leave(own[0])
            held.remove(own[0])
        held = [seat for seat in held if not seat.is_lost]
        assert len(seats) == len(held) <= MOST
