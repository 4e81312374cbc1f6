"""What control's HTTP face documents: pydantic models of its answers.

Lists are sent from bytes that were encoded once per refresh (`core/rows.py` has them), so these
models only describe; a test holds both to the same fields.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from services.control.api.event_models import Handover, Owner

JsonValue = str | int


class Counts(BaseModel):
    """Totals from the first record up to the committed position."""

    fragments: int
    bytes: int
    repeats: int
    markers: int
    ticks: int
    unreadable: int
    sessions: int
    delivered: int
    delivered_bytes: int


class Stream(BaseModel):
    """One stream of a group."""

    stream: int
    owner: str | None
    epoch: int
    state: Literal["unowned", "opening", "replaying", "running", "stopping", "rewind"]
    position: Annotated[int, Field(description="committed: all before it is accounted for")]
    end: Annotated[int, Field(description="offset of the next record that will be written")]
    lag: int
    safe_offset: Annotated[int, Field(description="where a replay would begin")]
    open_sessions: int
    state_bytes: int
    status: Annotated[Literal["OK", "WARN", "STOP", "STALL", "REWIND"], Field(description="as Burrow says")]
    last_handover: Handover | None = None
    counts: Counts


class Totals(Counts):
    """Sums over all streams of the group, whatever the page."""

    streams: int
    lag: int
    open_sessions: int


class Fresh(BaseModel):
    """How old the answer is."""

    stale_ms: Annotated[int, Field(description="age of the oldest reading that the answer rests on")]


class Streams(Fresh):
    """A page of a group's streams."""

    streams: list[Stream]
    totals: Totals


class StreamNode(BaseModel):
    """The stream's node in ZooKeeper."""

    epoch: int
    owner: str
    address: str
    seq: int | None
    target: str | None


class StreamDetail(Stream):
    """One stream of a group, with all that is known."""

    group: str
    topic: str
    first: Annotated[int, Field(description="first offset that is still in the log")]
    last: Annotated[int, Field(description="offset of the last record, `first` - 1 without any")]
    seq: int | None
    address: str | None
    node: StreamNode
    read_position: int | None
    covered: int
    cut: Annotated[int, Field(description="offsets that retention took before they were accounted for")]
    pinned_to: Annotated[str | None, Field(description="the member that an operator wants it to be with")]
    owners: Annotated[list[Owner], Field(description="the last ones, newest first, at most 10")]


class Rates(BaseModel):
    """Per second, lately."""

    fragments_per_s: float
    bytes_per_s: float
    sessions_per_s: float


class Member(BaseModel):
    """One member of a group."""

    id: str
    group: str
    address: str
    pid: int
    state: str
    since: int
    streams: Annotated[list[int], Field(description="those that it has claimed")]
    rates: Rates
    lease_ms: float | None
    zookeeper_session: str | None
    answers: Annotated[bool, Field(description="whether it told its status just now")]


class Members(Fresh):
    """A page of the members."""

    members: list[Member]


class Producer(BaseModel):
    """One producer."""

    id: str
    address: str
    pid: int
    since: int


class Producers(Fresh):
    """A page of the producers."""

    producers: list[Producer]


class GroupSettings(BaseModel):
    """The settings of a group, fixed for its life."""

    gap_ms: int
    lateness_ms: int
    idle_ms: int
    future_ms: int
    repeat_ms: int
    max_session_fragments: int
    max_session_bytes: int
    max_session_span_ms: int
    delivery: Literal["exactly_once", "at_least_once", "at_most_once"]


class Group(BaseModel):
    """One group."""

    name: str
    settings: GroupSettings | None
    members: list[str]
    streams: int
    lag: int


class Groups(Fresh):
    """A page of the groups."""

    groups: list[Group]


class Move(BaseModel):
    """A stream that would move."""

    stream: int
    from_: Annotated[str | None, Field(alias="from")]
    to: str | None
    why: str


class Plan(BaseModel):
    """What would move in a group, as one of its members computed it."""

    group: str
    computed_by: str | None
    moves: list[Move]
    quota: dict[str, int]
    pins: Annotated[dict[str, str], Field(description="stream → the member that it is pinned to")]


class JobParameter(BaseModel):
    """One parameter of a job."""

    name: str
    type: Literal["string", "integer"]
    description: str
    default: JsonValue | None
    low: int | None
    high: int | None
    pattern: str | None


class Job(BaseModel):
    """One Spark program."""

    name: str
    description: str
    parameters: list[JobParameter]


class Jobs(BaseModel):
    """All jobs."""

    jobs: list[Job]


class Progress(BaseModel):
    """Spark's own counts of tasks."""

    tasks: int
    completed: int
    active: int
    failed: int


class RunError(BaseModel):
    """Why a run did not succeed."""

    condition: Annotated[str, Field(description="Spark's error condition, or a word of Baton's")]
    message: str


class RunSummary(BaseModel):
    """One execution of a job."""

    id: str
    job: str
    group: str
    parameters: dict[str, JsonValue]
    state: Literal["starting", "running", "succeeded", "failed", "cancelled"]
    progress: Progress
    started_at: int
    ended_at: int | None
    timeout_s: float
    error: RunError | None


class Run(RunSummary):
    """One execution of a job, with its result once it has succeeded."""

    result: dict[str, object] | None


class Runs(BaseModel):
    """A page of the runs, the newest first."""

    runs: list[RunSummary]
