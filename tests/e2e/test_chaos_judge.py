"""The judge of chaos runs accepts an honest delivery and finds every fault planted in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pytest

from shared.model.sessions import Session, session_id
from tests.e2e.chaos_judge import judge_ledger
from tests.e2e.chaos_load import LAST_TIME_MS, Ledger, Posted
from tests.e2e.fleet import SETTINGS
from tests.e2e.readers import judge_log
from tests.reference import Rec, RefSession, fold_eagerly

APPENDED_MS = 1_800_000_000_000
Delivery = list[Session]


def ledger() -> Ledger:
    """Three fragments of `a`, then three of `b`; number 5, without an id, was not acknowledged."""
    posted = [Posted(number, key="aaabbb"[number], has_id=number != 5) for number in range(6)]
    found = Ledger(posted)
    found.note(posted[:5])
    return found


def log_of(numbers: Sequence[int], fragments: Sequence[Posted]) -> list[Rec]:
    """A stream's log with these fragments; the second one of each key ends its session; then a marker."""
    log: list[Rec] = []
    for number in numbers:
        one = fragments[number]
        body = {"key": one.key, "time": 1000 + number, "end": number % 3 == 1, "data": {"n": number}}
        value = msgspec.json.encode(body | ({"id": f"f{number}"} if one.has_id else {}))
        log.append(Rec(len(log), APPENDED_MS, one.key.encode(), value))
    log.append(Rec(len(log), APPENDED_MS, None, b'{"time": %d}' % LAST_TIME_MS))
    return log


def session_of(one: RefSession) -> Session:
    """A session of the plain fold as a member delivers it."""
    return Session(
        id=session_id("default", 0, one.key, one.offsets[0]),
        group="default",
        key=one.key,
        stream=0,
        epoch=1,
        first_offset=one.offsets[0],
        last_offset=one.offsets[-1],
        first_time=min(one.times),
        last_time=max(one.times),
        opened_at=one.opened_at,
        closed_at=APPENDED_MS,
        fragments=len(one.values),
        bytes=sum(map(len, one.values)),
        reason="end" if one.reason == "end" else "gap",
        data=[msgspec.Raw(value) for value in one.values],
    )


def judged(numbers: Sequence[int], plant: Callable[[Delivery], Delivery] = list) -> list[str]:
    """The judge's complaints about the delivery of such a log with a planted fault."""
    known = ledger()
    log = log_of(numbers, known.fragments)
    delivered = plant([session_of(one) for one in fold_eagerly(log, SETTINGS)[0]])
    return judge_ledger(known, delivered) + judge_log(0, log, delivered, SETTINGS)


def with_data(session: Session, data: Sequence[msgspec.Raw]) -> Session:
    """The same session with other fragments."""
    return msgspec.structs.replace(session, data=list(data))


@pytest.mark.parametrize(
    "numbers", [(0, 1, 2, 3, 4, 5), (0, 1, 2, 3, 4), (0, 1, 0, 1, 2, 3, 4), (5, 3, 0, 1, 4, 2)]
)
def test_an_honest_delivery_is_right(numbers: Sequence[int]) -> None:
    """Also with repeats, and where the unacknowledged fragment is missing or late."""
    assert judged(numbers) == []


@pytest.mark.parametrize(
    ("numbers", "complaint"),
    [((0, 1, 3, 4), "acknowledged fragments lost"), ((1, 0, 2, 3, 4), "a is out of order")],
)
def test_what_is_wrong_in_the_log_is_found(numbers: Sequence[int], complaint: str) -> None:
    """The sessions fit the log, but the log contradicts the answers that the clients got."""
    (wrong,) = judged(numbers)

    assert complaint in wrong


@pytest.mark.parametrize(
    ("plant", "complaint"),
    [
        (lambda found: found[1:], "sessions missing"),
        (lambda found: [*found, found[0]], "sessions twice"),
        (lambda found: [with_data(found[0], found[0].data[:1]), *found[1:]], "acknowledged fragments lost"),
        (lambda found: [with_data(found[0], found[0].data * 2), *found[1:]], "fragments doubled"),
        (lambda found: [with_data(found[0], found[0].data[::-1]), *found[1:]], "out of order"),
        (lambda found: [with_data(found[0], found[1].data), *found[1:]], "fragments of another key"),
        (lambda found: [msgspec.structs.replace(found[0], last_offset=6), *found[1:]], "overlap"),
        (lambda found: [msgspec.structs.replace(found[0], first_time=7), *found[1:]], "sessions extra"),
    ],
)
def test_what_is_wrong_in_the_sessions_is_found(
    plant: Callable[[Delivery], Delivery], complaint: str
) -> None:
    """Whatever is lost, doubled, mixed up or made up."""
    assert complaint in " ".join(judged((0, 1, 3, 4, 2, 5), plant))
