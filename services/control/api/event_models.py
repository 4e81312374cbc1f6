"""What control's HTTP face documents about events: pydantic models of its answers.

Rows are sent as they were encoded once; a test holds both to the same fields (see `models.py`).
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from shared.model.events import Kind


class Handover(BaseModel):
    """One handover; null is what its event does not tell."""

    at: Annotated[int, Field(description="ms UTC, by the clock of the member that tells")]
    epoch: Annotated[int | None, Field(description="of the claim that it led to")]
    from_: Annotated[str, Field(alias="from")]
    to: str
    why: str
    sessions: Annotated[int | None, Field(description="open ones that moved")]
    bytes: Annotated[int | None, Field(description="of their fragments")]
    copy_ms: Annotated[float | None, Field(description="how long the first copy took, while all went on")]
    pause_ms: Annotated[float | None, Field(description="last record of the donor to first of the recipient")]
    warm: Annotated[bool | None, Field(description="whether it went on from memory, without a replay")]


class Owner(BaseModel):
    """One owner that a stream has or had."""

    owner: str
    epoch: int
    since: int
    why: str
    warm: bool | None
    pause_ms: float | None


class Event(BaseModel):
    """One thing that happened; what does not apply is left out."""

    id: Annotated[int, Field(description="its offset in the topic")]
    at: int
    group: str
    kind: Kind
    member: str = ""
    stream: int | None = None
    epoch: int | None = None
    source: Annotated[str, Field(alias="from")] = ""
    target: Annotated[str, Field(alias="to")] = ""
    why: str = ""
    sessions: int | None = None
    bytes: int | None = None
    copy_ms: float | None = None
    pause_ms: float | None = None
    warm: bool | None = None


class Events(BaseModel):
    """A page of the events, in their order."""

    events: list[Event]
    stale_ms: Annotated[int, Field(description="how long ago all events had been read")]
