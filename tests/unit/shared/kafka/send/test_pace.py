"""When cohorts leave: merged when that pays, never held for longer than a quarter of a round trip."""

from __future__ import annotations

import heapq
import random
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.kafka.send.pace import HOLDS_FOR, SLOW_ROUND_S, Flight, Pace

ROUND_TRIP_S = 0.003


class World:
    """Clients and a broker on a virtual clock, which send through one `Pace`."""

    def __init__(self, at_once: int = 1, *, is_merging: bool = True) -> None:
        self.pace = Pace(at_once)
        self.cohorts: list[int] = []
        self.held_s = 0.0
        self.waits_s: list[float] = []
        self._is_merging = is_merging
        self._events: list[tuple[float, int, str, object]] = []
        self._number = 0
        self._waiting: list[tuple[int, float]] = []

    def at(self, when_s: float, what: str, of: object = None) -> None:
        self._number += 1
        heapq.heappush(self._events, (when_s, self._number, what, of))

    def run(self, until_s: float, think_s: float | None) -> None:
        """Each client sends again `think_s` after its answer; None: never."""
        while self._events and self._events[0][0] <= until_s:
            now_s, _, what, of = heapq.heappop(self._events)
            if what == "send":
                self.pace.came += 1
                self.pace.waiting += 1
                self._waiting.append((cast(int, of), now_s))
            elif what == "answer":
                flight, clients = cast(tuple[Flight, list[int]], of)
                counting_s = self.pace.answered(flight, now_s)
                if counting_s:
                    assert counting_s <= HOLDS_FOR * self.pace.round_trip_s
                    self.at(now_s + counting_s, "count")
                if think_s is not None:
                    for client in clients:
                        self.at(now_s + think_s * random.uniform(0.5, 1.5), "send", client)
            elif what == "count":
                self.pace.counted()
            self._depart(now_s)

    def _depart(self, now_s: float) -> None:
        wait_s = self.pace.wait_s(now_s)
        if not self._waiting or wait_s is None or (wait_s > 0 and self._is_merging):
            return
        flight = self.pace.leave(now_s)
        assert flight.size == len(self._waiting)
        self.cohorts.append(flight.size)
        self.waits_s += [now_s - came_s for _, came_s in self._waiting]
        clients, self._waiting = [client for client, _ in self._waiting], []
        self.at(now_s + ROUND_TRIP_S, "answer", (flight, clients))


def closed_loop(clients: int, *, think_s: float, is_merging: bool = True) -> World:
    """Half of the clients begin half a round trip after the others."""
    random.seed(1)
    world = World(is_merging=is_merging)
    for client in range(clients):
        world.at(client % 2 * ROUND_TRIP_S / 2, "send", client)
    world.run(2.0, think_s)
    return world


def test_clients_that_return_soon_fly_together() -> None:
    """Two halves that take turns become one whole, which nearly doubles the rate."""
    halves = closed_loop(64, think_s=0.0004, is_merging=False)
    merged = closed_loop(64, think_s=0.0004)

    assert sum(halves.cohorts[-100:]) < 100 * 40
    assert sum(merged.cohorts[-100:]) > 100 * 58
    assert sum(merged.cohorts) > 1.4 * sum(halves.cohorts)


def test_clients_that_return_late_are_not_waited_for() -> None:
    """Where waiting does not pay, nothing waits: cohorts leave as without it."""
    plain = closed_loop(64, think_s=0.002, is_merging=False)
    merged = closed_loop(64, think_s=0.002)

    assert merged.cohorts == plain.cohorts


def test_traffic_that_does_not_return_leaves_at_once() -> None:
    """An idle broker is used at once, however much came before."""
    random.seed(2)
    world, at_s = World(), 0.0
    for request in range(4_000):
        at_s += random.expovariate(2_000)
        world.at(at_s, "send", request)
    world.run(10.0, None)

    assert world.pace.returning < 0.5
    assert max(world.waits_s) <= ROUND_TRIP_S + 1e-9


def test_one_client_alone_never_waits() -> None:
    """It leaves at once, although it always returns."""
    world = closed_loop(1, think_s=0.0001)

    assert max(world.waits_s) == 0.0


@given(
    st.lists(
        st.tuples(st.sampled_from(["send", "depart", "answer", "fail", "count"]), st.floats(0, 0.01)),
        max_size=200,
    ),
    st.integers(1, 3),
)
def test_nothing_is_held_for_longer_than_a_quarter_of_a_round_trip(
    steps: list[tuple[str, float]], at_once: int
) -> None:
    """Whatever happens in whatever order, and nothing is held while a broker has failed to answer."""
    pace, now_s, flying, counting = Pace(at_once), 1.0, list[Flight](), False
    for what, passes_s in steps:
        now_s += passes_s
        if what == "send":
            pace.came += 1
            pace.waiting += 1
        elif what == "depart" and pace.waiting and pace.wait_s(now_s) == 0:
            flying.append(pace.leave(now_s))
        elif what == "answer" and flying:
            counting = bool(pace.answered(flying.pop(0), now_s)) or counting
        elif what == "fail" and flying:
            pace.failed(flying.pop(0))
        elif what == "count" and counting:
            pace.counted()
            counting = False
            assert not pace.wait_s(now_s)  # timers may be early
        wait_s = pace.wait_s(now_s)
        if wait_s is None:
            assert len(flying) >= at_once
        else:
            assert 0.0 <= wait_s <= HOLDS_FOR * pace.round_trip_s + 1e-9


@pytest.mark.parametrize("at_once", [1, 2])
def test_a_slow_flight_holds_up_the_next_for_a_bounded_time(at_once: int) -> None:
    """After SLOW_ROUND_S the next one leaves; the slow one's answer then says nothing about the usual."""
    pace = Pace(at_once)
    flights = []
    for _ in range(at_once):
        pace.waiting += 1
        flights.append(pace.leave(0.0))
    pace.waiting += 1
    at_the_limit = pace.release_slow(SLOW_ROUND_S), pace.wait_s(SLOW_ROUND_S)
    past_it = pace.release_slow(SLOW_ROUND_S * 1.01), pace.wait_s(SLOW_ROUND_S * 1.01)

    assert at_the_limit == (False, None)
    assert past_it == (True, 0.0)
    assert pace.is_stuck
    assert pace.answered(flights[0], 1.0) == 0.0
    assert pace.round_trip_s == 0.0
    for flight in flights[1:]:
        pace.failed(flight)
    assert not pace.is_stuck
