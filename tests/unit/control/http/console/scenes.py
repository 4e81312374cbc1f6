"""Scenes for the tests of the console: a group whose streams, owners and numbers hypothesis chooses."""

from __future__ import annotations

from hypothesis import strategies as st

from services.control.core.report.observed import Rates
from services.control.core.report.rows import CountsRow, MemberRow, PlanRow, StreamRow
from services.control.http.console.shown.scene import Scene

MEMBERS = ("m0", "m1", "m2")


def stream_row(
    stream: int, owner: str | None = "m0", *, lag: int | None = 0, status: str | None = "OK"
) -> StreamRow:
    """A running stream; with a `lag` of None its log has no leader."""
    return StreamRow(
        stream=stream,
        owner=owner,
        epoch=1,
        state="running" if owner else "unowned",
        position=100,
        end=None if lag is None else 100 + lag,
        lag=lag,
        lag_ms=0,
        rate=1.5,
        read_rate=1.25,
        safe_offset=90,
        open_sessions=7,
        state_bytes=700,
        status=status,  # type: ignore[arg-type]
        failures=0,
        why="",
        pinned_to=None,
        last_handover=None,
        counts=CountsRow(),
    )


def member_row(name: str, *, answers: bool = True, state: str = "active") -> MemberRow:
    """A member of the group `g`."""
    return MemberRow(
        id=name,
        group="g",
        address=f"http://{name}:1",
        pid=1,
        state=state,
        since=0,
        streams=[],
        rates=Rates(fragments_per_s=5, sessions_per_s=1),
        lease_ms=4000 if answers else None,
        lease_length_ms=5000 if answers else None,
        zookeeper_session="0x1",
        answers=answers,
        paused=None,
    )


def scene_with(rows: list[StreamRow], members: tuple[str, ...] = MEMBERS) -> Scene:
    """A scene of these streams."""
    return Scene(
        group="g",
        rows=rows,
        members=[member_row(name) for name in members],
        plan=PlanRow(group="g", computed_by="m0", moves=[], quota={}, pins={}),
        now_ms=1_700_000_000_000,
        stale_ms=5,
    )


@st.composite
def scenes(draw: st.DrawFn, streams: int = 5) -> Scene:
    """A scene of five streams and three members."""
    rows = [
        stream_row(
            stream,
            draw(st.sampled_from([*MEMBERS, None])),
            lag=draw(st.sampled_from([0, 99, 100, 5_000])),
            status=draw(st.sampled_from(["OK", "WARN", "STOP"])),
        )
        for stream in range(streams)
    ]
    return scene_with(rows)
