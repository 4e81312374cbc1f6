"""The audit's verdict on a key whose log was started over, or whose sessions retention has removed."""

from __future__ import annotations

import pytest

from services.consumer.core.commits.delivery import delivered
from services.consumer.core.sessions.assembly import Assembler
from services.control.spark.audit.fold import Late, Line
from services.control.spark.audit.rows import digest
from services.control.spark.audit.verdict import ALL_REMOVED, Delivered, KeyVerdict, StreamFacts, Tally
from services.control.spark.kafka.delivered import read_session
from shared.model.group import GroupSettings
from tests.reference import Rec

SETTINGS = GroupSettings()
VALUE = b'{"key":"k","end":true}'


def delivery(log: int) -> Delivered:
    """The session of a log with one fragment, as its owner delivers it."""
    (closed,) = Assembler(SETTINGS).feed([Rec(0, 1000, b"k", VALUE)])
    _, value = delivered(closed, "g", 0, 1, log)
    fields, fragments = read_session(value)
    return Delivered(fields, [digest(one.encode()) for one in fragments])


@pytest.mark.parametrize(
    ("logs", "log", "found", "not_judged"),
    [
        ([0], 0, [], 0),
        ([0, 52], 52, [], 1),
        ([0, 7, 52], 52, [], 2),
        ([0], 52, ["missing"], 1),
        ([0, 52, 52], 52, ["extra"], 1),
        ([0, 52], 0, ["extra"], 0),
    ],
)
def test_sessions_of_earlier_logs_are_not_judged(
    logs: list[int], log: int, found: list[str], not_judged: int
) -> None:
    """Of the present log, sessions are missing or extra as ever; of a log that is gone, nothing is."""
    tally = Tally()
    verdict = KeyVerdict("g", "k", SETTINGS, StreamFacts(stream=0, position=1, log=log), tally)

    findings = [finding for one in logs for finding in verdict.deliver(delivery(one))]
    findings += verdict.feed(Line(0, 1000, 1000, -1, 1000, True, None, len(VALUE), digest(VALUE)))
    findings += verdict.finish()

    assert [finding.kind for finding in findings] == found
    assert tally.not_judged == not_judged


@pytest.mark.parametrize(
    ("removed_until", "found", "not_judged"),
    [(-1, ["missing"], 0), (999, ["missing"], 0), (1000, [], 1), (ALL_REMOVED, [], 1)],
)
def test_a_session_that_retention_may_have_removed_is_not_missing(
    removed_until: int, found: list[str], not_judged: int
) -> None:
    """It is missing only if it was delivered after the first one that is left."""
    tally = Tally()
    facts = StreamFacts(stream=0, position=1, removed_until=removed_until)
    verdict = KeyVerdict("g", "k", SETTINGS, facts, tally)

    findings = verdict.feed(Line(0, 1000, 1000, -1, 1000, True, None, len(VALUE), digest(VALUE)))
    findings += verdict.finish()

    assert [finding.kind for finding in findings] == found
    assert (tally.judged, tally.not_judged) == (len(found), not_judged)


DUE, NOT_DUE = Late(0, 1001 + SETTINGS.idle_ms), Late(0, 1000 + SETTINGS.idle_ms)


@pytest.mark.parametrize(
    ("silent", "committed", "removed_until", "found", "counts"),
    [
        (NOT_DUE, NOT_DUE, -1, [], "open"),
        (NOT_DUE, DUE, -1, [], "under_way"),
        (DUE, DUE, -1, ["overdue"], "judged"),
        (DUE, DUE, 999, ["overdue"], "judged"),
        (DUE, DUE, 1000, [], "not_judged"),
    ],
)
@pytest.mark.parametrize("returns", [False, True])
def test_a_session_that_silence_has_ended_is_overdue(
    returns: bool, silent: Late, committed: Late, removed_until: int, found: list[str], counts: str
) -> None:
    """If that was below the position, and its owner has come to it; a fragment that splits it above the
    position changes nothing."""
    tally = Tally()
    facts = StreamFacts(
        stream=0, position=5, silent=silent, committed=committed, end=DUE, removed_until=removed_until
    )
    verdict = KeyVerdict("g", "k", SETTINGS, facts, tally)

    findings = verdict.feed(Line(0, 1000, 1000, -1, 1000, False, None, 9, b"0" * 16))
    if returns:
        findings += verdict.feed(Line(5, *(DUE.a, DUE.a), 1000, DUE.a, False, None, 9, b"1" * 16))
    findings += verdict.finish()

    assert [finding.kind for finding in findings] == found
    assert getattr(tally, counts) == 1 + (returns and counts == "open")
    assert tally.not_judged == (counts in ("under_way", "not_judged"))
