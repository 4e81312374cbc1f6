"""`baton find` and `baton session`: for people, and control's own JSON for machines."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.cli.fake_services import InMemoryControl, baton

ID = "5f0c7e2ab91d" + "0" * 20
OPEN = {
    "key": "ann",
    "first_offset": 4_120_551,
    "last_offset": 4_120_900,
    "first_time": 807256800000,
    "last_time": 807256860000,
    "opened_at": 807256800000,
    "last_at": 807256860000,
    "fragments": 9,
    "bytes": 7400,
    "parked": False,
    "silent_after": 807258960000,
    "idle_after": 807258960000,
}
SESSION = {
    "id": ID,
    "group": "default",
    "key": "ann\x1b[2J",
    "stream": 11,
    "epoch": 3,
    "first_offset": 40,
    "last_offset": 77,
    "first_time": 807256800000,
    "last_time": 807256860000,
    "opened_at": 807256800000,
    "closed_at": 807258960000,
    "fragments": 31,
    "bytes": 26_000,
    "reason": "gap",
    "data": ['{"key":"ann","path":"/a"}', '{"key":"ann","end":true}'],
}


def key_row(**changes: Any) -> dict[str, Any]:
    """Control's answer for a key with an open and a finished session."""
    finished = {"sessions": [SESSION], "next": None, "behind_records": 0, "why": ""}
    row = {"group": "default", "key": "ann", "slot": 1924, "stream": 11, "owner": "consumer-1"}
    row |= {"state": "running", "answered": True, "why": "", "open": OPEN, "data": []}
    return row | {"finished": finished | changes.pop("finished", {})} | changes


NOT_KNOWN = {"sessions": None, "why": "the lake has no table of sessions yet; `baton run lake` makes it"}


@pytest.mark.parametrize(
    ("answer", "sentences"),
    [
        pytest.param(
            key_row(),
            [
                "key ann: slot 1,924, stream 11, owner consumer-1",
                "Open since 1995-08-01 06:00:00Z: 9 fragments, 7,400 bytes, from offset 4,120,551",
                "silence ends it after 1995-08-01 06:36:00Z at the earliest",
                ID,
            ],
            id="open and finished",
        ),
        pytest.param(key_row(open=None), ["No session is open."], id="not open"),
        pytest.param(
            key_row(owner=None, answered=False, why="nobody owns stream 11", open=None),
            ["owner nobody", "It is not known whether a session is open: nobody owns stream 11."],
            id="unowned",
        ),
        pytest.param(key_row(finished=NOT_KNOWN), ["`baton run lake` makes it"], id="no lake"),
        pytest.param(key_row(finished={"sessions": []}), ["no finished session"], id="not finished"),
        pytest.param(
            key_row(finished={"next": "x", "behind_records": 1200}),
            ["more than 20", "lacks 1,200 newer records of the group: `baton run lake` adds them."],
            id="more",
        ),
    ],
)
def test_find_says_where_a_keys_sessions_are(answer: dict[str, Any], sentences: list[str]) -> None:
    """Each part that is not known says why."""
    control = InMemoryControl({"/keys": answer})

    shown = baton(control.answer, "find", "ann")

    assert shown.exit_code == 0
    assert [sentence for sentence in sentences if sentence not in shown.output] == []
    assert control.queries == [("/keys", {"group": "default", "key": "ann", "limit": "20"})]


def test_find_lists_the_sessions_of_a_day() -> None:
    """With their keys, and without what only a key has; text of clients cannot steer the terminal."""
    answer = {"sessions": [SESSION], "next": "x", "behind_records": 0, "why": ""}
    control = InMemoryControl({"/sessions": answer})

    shown = baton(control.answer, "find", "--day", "1995-08-01")

    assert [text for text in ("ann\\x1b[2J", ID, "more than 20") if text not in shown.output] == []
    assert [text for text in ("\x1b[2J", "slot", "open") if text in shown.output] == []
    assert control.queries == [("/sessions", {"group": "default", "limit": "20", "day": "1995-08-01"})]


@pytest.mark.parametrize("arguments", [(), ("ann", "--day", "1995-08-01"), ("--day", "today")])
def test_find_wants_a_key_or_a_day(arguments: tuple[str, ...]) -> None:
    """Not both: control looks up either."""
    assert baton(InMemoryControl({}).answer, "find", *arguments).exit_code == 2


def test_a_session_is_shown_with_its_fragments() -> None:
    """One fragment a line; text of clients cannot steer the terminal."""
    shown = baton(InMemoryControl({f"/sessions/{ID}": SESSION}).answer, "session", ID)

    assert shown.exit_code == 0
    assert shown.output.splitlines()[-2:] == SESSION["data"]
    assert "silence" in shown.output
    assert "ann\\x1b[2J" in shown.output
    assert "\x1b[2J" not in shown.output


@pytest.mark.parametrize(
    ("path", "answer", "command"),
    [
        ("/keys", key_row(), ("find", "ann")),
        ("/sessions", key_row()["finished"], ("find", "--day", "1995-08-01")),
        (f"/sessions/{ID}", SESSION, ("session", ID)),
    ],
)
def test_json_is_controls_own(path: str, answer: dict[str, Any], command: tuple[str, ...]) -> None:
    """`-o json` prints control's answer, nothing else."""
    shown = baton(InMemoryControl({path: answer}).answer, *command, "-o", "json")

    assert json.loads(shown.stdout) == answer


def test_a_session_that_is_not_there_fails() -> None:
    """With control's sentence."""
    shown = baton(InMemoryControl({}).answer, "session", ID)

    assert shown.exit_code != 0
    assert f"there is no /sessions/{ID}" in str(shown.exception) + shown.output
