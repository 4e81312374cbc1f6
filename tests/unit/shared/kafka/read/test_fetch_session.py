"""A fetch session: what the broker remembers is always what is wished, whoever ends the session."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from shared.kafka.read.fetch_session import MAX_EPOCH, FetchSession
from shared.kafka.wire.fetch import Place, Wish
from tests.effort import effort

places = st.builds(Place, st.just(b"t" * 16), st.integers(0, 3))
wishes = st.dictionaries(places, st.builds(Wish, st.integers(0, 2), st.just(0), st.just(-1), st.just(100)))
answers = st.sampled_from([5, 5, 5, 6, 0, None])
"""The session that the broker names; 0: it has none to spare, None: its answer is missing."""


@given(steps=st.lists(st.tuples(wishes, answers), max_size=8), is_committed=st.booleans())
@settings(max_examples=effort(200), deadline=None)
def test_a_broker_hears_of_every_change_and_of_nothing_else(
    steps: list[tuple[dict[Place, Wish], int | None]], is_committed: bool
) -> None:
    """The requests of a session are numbered. Without a session, the next request begins one."""
    session = FetchSession(is_committed=is_committed)
    known: dict[Place, Wish] = {}
    named = 0, 0
    for wished, answer in steps:
        request = session.request(wished, 30, 1_000)

        assert not request.wishes.items() & known.items()
        known |= request.wishes
        for place in request.forgotten:
            del known[place]
        assert known == wished
        assert request.session == named
        assert (request.wait_ms, request.max_bytes, request.is_committed) == (30, 1_000, is_committed)
        if answer is None:
            session.reset()
        else:
            session.answered(answer)
        named = (answer, named[1] + 1) if answer else (0, 0)
        known = known if answer else {}


def test_the_numbers_of_a_session_begin_again_at_1() -> None:
    """0 would begin another session."""
    session = FetchSession(is_committed=False)
    session._epoch = MAX_EPOCH - 1
    numbers = []
    for _ in range(3):
        numbers.append(session.request({}, 30, 1_000).session[1])
        session.answered(5)

    assert numbers == [MAX_EPOCH - 1, MAX_EPOCH, 1]
