"""The ground that the simulation stands on: frozen processes stand still, and messages meet their fate."""

from __future__ import annotations

import asyncio
import contextvars
import random

import pytest

from shared.errors import KafkaUnavailable
from tests.fakes.virtual_time import PROCESS, NoEnd, VirtualLoop
from tests.simulation.wire import Weather, Wire


def context_of(process: str) -> contextvars.Context:
    """A context in which code belongs to the process."""
    context = contextvars.Context()
    context.run(PROCESS.set, process)
    return context


def wire_of(loop: VirtualLoop, weather: Weather) -> Wire:
    """A way with that weather."""
    return Wire(loop, random.Random(7), weather, KafkaUnavailable)


def test_a_frozen_process_does_nothing_and_goes_on_late() -> None:
    """Nothing of it runs while time passes for the others; then what became due runs, in order."""
    loop, seen = VirtualLoop(), []

    async def count(name: str) -> None:
        for n in range(4):
            await asyncio.sleep(1)
            seen.append((name, n, loop.now_s))

    async def course() -> None:
        tasks = [loop.create_task(count(name), context=context_of(name)) for name in "ab"]
        await asyncio.sleep(1.5)
        loop.freeze("a")
        await asyncio.sleep(2.2)
        loop.thaw("a")
        await asyncio.gather(*tasks)

    loop.run(course())

    assert [at_s for name, _, at_s in seen if name == "b"] == [1, 2, 3, 4]
    assert [at_s for name, _, at_s in seen if name == "a"] == pytest.approx([1, 3.7, 4.7, 5.7])


def test_what_was_sent_before_a_freeze_arrives_during_it() -> None:
    """The request travels on; only its answer has to wait for the receiver."""
    loop, done = VirtualLoop(), []
    wire = wire_of(loop, Weather())

    async def call() -> None:
        await wire.call(lambda: done.append(("effect", loop.now_s)), 9.0, contextvars.Context())
        done.append(("answer", loop.now_s))

    async def course() -> None:
        task = loop.create_task(call(), context=context_of("a"))
        await asyncio.sleep(0)
        loop.freeze("a")
        await asyncio.sleep(5)
        loop.thaw("a")
        await task

    loop.run(course())

    assert [(what, at_s > 4) for what, at_s in done] == [("effect", False), ("answer", True)]


@pytest.mark.parametrize(
    ("weather", "effects"),
    [
        (Weather(cut_requests=True), 0),
        (Weather(lost_request=1.0), 0),
        (Weather(cut_answers=True), 1),
        (Weather(lost_answer=1.0), 1),
        (Weather(lost_answer=1.0, repeated=1.0), 2),
    ],
    ids=str,
)
def test_an_unanswered_request_may_have_taken_effect(weather: Weather, effects: int) -> None:
    """Lost requests never do, lost answers hide that they did; the sender cannot know."""
    loop, done = VirtualLoop(), []

    async def course() -> None:
        with pytest.raises(KafkaUnavailable):
            await wire_of(loop, weather).call(lambda: done.append(1), 2.0, contextvars.Context())
        await asyncio.sleep(10)

    loop.run(course())

    assert len(done) == effects


def test_a_late_request_takes_effect_after_its_sender_timed_out() -> None:
    """That is why a commit of unknown outcome is only safe behind a fence."""
    loop, late = VirtualLoop(), []

    async def course() -> None:
        wire = wire_of(loop, Weather(late=1.0))
        for _ in range(20):
            given_up = False

            def effect() -> None:
                late.append(given_up)  # noqa: B023

            try:
                await wire.call(effect, 1.0, contextvars.Context())
            except KafkaUnavailable:
                given_up = True
            await asyncio.sleep(10)

    loop.run(course())

    assert len(late) == 20
    assert True in late


def test_messages_of_a_dead_process_are_dropped() -> None:
    """What it sent before its death arrives, what it sends afterwards does not."""
    loop, done = VirtualLoop(), []
    wire = wire_of(loop, Weather())

    async def course() -> None:
        said = asyncio.ensure_future(wire.call(lambda: done.append("before"), 2.0, contextvars.Context()))
        await asyncio.sleep(0)
        wire.dead = True
        with pytest.raises(KafkaUnavailable):
            await wire.call(lambda: done.append("after"), 2.0, contextvars.Context())
        await said

    loop.run(course())

    assert done == ["before"]


def test_a_run_in_which_nothing_can_happen_fails() -> None:
    """Instead of hanging."""

    async def course() -> None:
        await asyncio.Event().wait()

    with pytest.raises(NoEnd, match="no timer is left"):
        VirtualLoop().run(course())


def test_a_task_that_spins_without_time_passing_fails() -> None:
    """Such a run would never end, and such a process would burn its core."""

    async def course() -> None:
        while True:  # noqa: ASYNC110 - what spins does not wait for anything
            await asyncio.sleep(0)

    with pytest.raises(NoEnd, match="no end in sight"):
        VirtualLoop().run(course())
