"""The comparison of delivered sessions with those of a generated log."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import astuple
from typing import Any

import msgspec
import pytest

from cli.demo.truth import Findings, TruthCheck
from cli.importing.parsing.fragments import encode_fragment, fragment_id, log_digest
from cli.importing.parsing.rows import Row
from cli.visits.generator import TrueSession, Visits, generate
from shared.model.sessions import Session

NAME = "visits.ndjson"
VISITS = generate(30, 5)
LONG = next(place for place, session in enumerate(VISITS.truth) if session.fragments > 2)
"""The index of a session with more than two lines."""


def test_the_delivered_truth_is_exact() -> None:
    """Delivering every session of the truth once, in any order, leaves no difference."""
    findings = judge(reversed(delivered(VISITS)))

    assert findings.is_exact
    assert findings.examples == []


def test_an_undelivered_session_is_missing() -> None:
    """The findings count it and name it."""
    sessions = delivered(VISITS)
    del sessions[LONG]

    findings = judge(sessions)

    assert astuple(findings)[:3] == (1, 0, 0)
    assert findings.examples == [
        f"missing: {VISITS.truth[LONG].key!r} from line {VISITS.truth[LONG].lines[0]}"
    ]


def test_a_session_delivered_twice_is_extra() -> None:
    """Even if both copies are equal."""
    sessions = delivered(VISITS)

    assert astuple(judge([*sessions, sessions[LONG]]))[:3] == (0, 1, 0)


def forged(session: Session) -> msgspec.Raw:
    """The session's last fragment with another status than its line."""
    return msgspec.Raw(re.sub(rb'"status":\d+', b'"status":500', bytes(session.data[-1])))


@pytest.mark.parametrize(
    "change",
    [
        lambda session: {"data": session.data[:-1], "fragments": session.fragments - 1},
        lambda session: {"data": [*session.data, session.data[-1]], "fragments": session.fragments + 1},
        lambda session: {"data": [*session.data[:-1], forged(session)]},
        lambda session: {"reason": "limit"},
        lambda session: {"last_time": session.last_time + 1},
    ],
    ids=["missing fragment", "repeated fragment", "forged fragment", "reason", "time"],
)
def test_a_changed_session_is_different(change: Callable[[Session], dict[str, Any]]) -> None:
    """A missing, repeated or forged fragment, another reason or time: each counts as a difference."""
    sessions = delivered(VISITS)
    sessions[LONG] = msgspec.structs.replace(sessions[LONG], **change(sessions[LONG]))

    assert astuple(judge(sessions))[:3] == (0, 0, 1)


def test_fragments_of_another_log_are_extra() -> None:
    """The log's name is part of the ids, so sessions of another log do not match."""
    sessions = delivered(VISITS, name="other.ndjson")

    findings = judge(sessions)

    assert (findings.missing, findings.extra) == (len(VISITS.truth), len(sessions))
    assert len(findings.examples) == 5


def judge(sessions: Iterable[Session]) -> Findings:
    """What the comparison finds."""
    check = TruthCheck(VISITS, NAME)
    for session in sessions:
        check.add(session)
    return check.finish()


def delivered(visits: Visits, name: str = NAME) -> list[Session]:
    """The sessions of the truth as consumers deliver them."""
    return [_session(visits, session, log_digest(name)) for session in visits.truth]


def _session(visits: Visits, true: TrueSession, digest: str) -> Session:
    data = []
    for number in true.lines:
        line = visits.lines[number - 1]
        raw = msgspec.json.encode(line)
        row = Row(line.key, line.time, line.end, raw)
        data.append(msgspec.Raw(encode_fragment(row, fragment_id(digest, number, raw))))
    return Session(
        id=f"id-{true.lines[0]}",
        group="default",
        key=true.key,
        stream=0,
        epoch=1,
        first_offset=true.lines[0],
        last_offset=true.lines[-1],
        first_time=true.first_time,
        last_time=true.last_time,
        opened_at=0,
        closed_at=0,
        fragments=true.fragments,
        bytes=sum(len(bytes(raw)) for raw in data),
        reason=true.reason,
        data=data,
    )
