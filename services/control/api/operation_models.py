"""What the routes under /operations take and answer: pydantic models of the bodies.

The requests are read by these; the answers are encoded from `core/operations.py` and only described here, and
a test holds both to the same fields.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from services.control.core.operations import Wish
from shared.model.names import DEFAULT_GROUP

Name = Annotated[str, Field(min_length=1, max_length=300)]


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid")

    group: Annotated[str, Field(max_length=100, description="the group whose members carry it out")] = (
        DEFAULT_GROUP
    )
    dry_run: Annotated[bool, Field(description="only say what would move, and what that costs")] = False


class MoveRequest(_Request):
    """Pin a stream to a member."""

    kind: Literal["move"]
    stream: Annotated[int, Field(ge=0)]
    to: Annotated[Name, Field(description="the member that is to have it")]

    def wish(self) -> Wish:
        """As the core takes it."""
        return Wish(kind="move", group=self.group, stream=self.stream, to=self.to)


class DrainRequest(_Request):
    """Have a member hand over all its streams, and leave."""

    kind: Literal["drain"]
    member: Name

    def wish(self) -> Wish:
        """As the core takes it."""
        return Wish(kind="drain", group=self.group, member=self.member)


class RebalanceRequest(_Request):
    """Take all pins away."""

    kind: Literal["rebalance"]

    def wish(self) -> Wish:
        """As the core takes it."""
        return Wish(kind="rebalance", group=self.group)


OperationRequest = Annotated[
    MoveRequest | DrainRequest | RebalanceRequest, Field(discriminator="kind", description="what is wanted")
]


class StreamMove(BaseModel):
    """A stream that moves; null is nobody."""

    stream: int
    from_: Annotated[str | None, Field(alias="from")]
    to: str | None
    sessions: Annotated[int, Field(description="open sessions that travel")]
    bytes: Annotated[int, Field(description="their size in memory")]


class Totals(BaseModel):
    """Sums over the moves."""

    moves: int
    sessions: int
    bytes: int


class Forecast(BaseModel):
    """What an operation would do; fields that its kind does not have are null."""

    kind: Literal["move", "drain", "rebalance"]
    group: str
    stream: int | None
    to: str | None
    member: str | None
    moves: list[StreamMove]
    totals: Totals


class Operation(BaseModel):
    """An operation, as far as it is."""

    id: str
    kind: Literal["move", "drain", "rebalance"]
    group: str
    stream: int | None
    to: str | None
    member: str | None
    state: Annotated[
        Literal["pending", "running", "done", "failed"],
        Field(description="pending: the members have not been seen to know of it"),
    ]
    moves: Annotated[list[StreamMove], Field(description="as they were foreseen")]
    done: Annotated[int, Field(description="how many of them are made")]
    total: int
    sessions: int
    bytes: int
    why: Annotated[str, Field(description="what it waits for, or why it has failed")]
    since: int
    ended_at: int | None


class Operations(BaseModel):
    """A page of the operations, the newest first."""

    operations: list[Operation]
