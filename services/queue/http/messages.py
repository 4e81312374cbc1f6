"""The JSON of the queue's routes: what requests hold, in their units, and what answers look like.

Times of requests are in seconds, as people write them; the log has milliseconds.
"""

from __future__ import annotations

import base64
from typing import Annotated, TypeAlias, TypeVar

import msgspec

from services.queue.core.commands import MAX_LEASED, QueueSettings
from services.queue.core.items import RejectedItem, is_json
from services.queue.worker.handing_out import HandedOut
from services.queue.worker.queues import QueueChanges
from shared.errors import InvalidInput
from shared.model.items import RequestUnreadable

MAX_RECEIPTS = 1_000
MAX_LEASE_S = 43_200
MAX_WAIT_S = 20
MAX_WHY = 1_000

LeaseSeconds: TypeAlias = Annotated[float, msgspec.Meta(ge=1, le=MAX_LEASE_S)]
Receipts: TypeAlias = Annotated[list[str], msgspec.Meta(min_length=1, max_length=MAX_RECEIPTS)]
S = TypeVar("S", bound=msgspec.Struct)


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request's body."""


class PutQueue(Request, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a queue is; what is left out stays as it is, or is the default."""

    over: Annotated[str, msgspec.Meta(max_length=249, description="an existing topic")] | None = None
    partitions: Annotated[int, msgspec.Meta(ge=1, le=100)] | None = None
    lease_s: LeaseSeconds | None = None
    max_attempts: Annotated[int, msgspec.Meta(ge=0, le=10_000, description="0: never buried")] | None = None
    repeat_ms: Annotated[int, msgspec.Meta(ge=0, le=86_400_000)] | None = None
    keep_s: Annotated[float, msgspec.Meta(ge=0, le=31_536_000)] | None = None

    def changes(self) -> QueueChanges:
        """In the units of the log."""
        return QueueChanges(
            over=self.over,
            partitions=self.partitions,
            lease_ms=None if self.lease_s is None else int(self.lease_s * 1000),
            max_attempts=self.max_attempts,
            repeat_ms=self.repeat_ms,
            keep_ms=None if self.keep_s is None else int(self.keep_s * 1000),
        )


class LeaseItems(Request, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many items, for how long, and how long to wait for the first one."""

    max: Annotated[int, msgspec.Meta(ge=1, le=MAX_LEASED)] = 1
    lease_s: LeaseSeconds | None = None
    wait_s: Annotated[float, msgspec.Meta(ge=0, le=MAX_WAIT_S)] = 0.0


class WithReceipts(Request, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The items that are done."""

    receipts: Receipts


class ReleaseItems(WithReceipts, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The items that are given back, and when they may be leased again; `unseen`: this was no attempt."""

    delay_s: Annotated[float, msgspec.Meta(ge=0, le=MAX_LEASE_S)] = 0.0
    unseen: bool = False


class RejectItems(WithReceipts, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The items that become dead letters now, and why."""

    why: Annotated[str, msgspec.Meta(max_length=MAX_WHY)] = ""


class ExtendItems(WithReceipts, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The items whose leases end `lease_s` from now."""

    lease_s: LeaseSeconds | None = None


class SeekQueue(Request, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the queue goes on: `earliest`, `latest`, a time (ms or RFC 3339), or an offset by partition."""

    to: str | int | dict[str, Annotated[int, msgspec.Meta(ge=0)]]
    dry_run: bool = False


class PurgeQueue(Request, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """With `dry_run` it only says how many items would be dropped."""

    dry_run: bool = False


class Item(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A leased item; `raw` (base64) instead of `data` if it is not JSON. Times: ms UTC."""

    receipt: str
    id: str | None
    attempt: int
    enqueued_at: int
    until: int
    headers: dict[str, str] = {}
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    raw: str | msgspec.UnsetType = msgspec.UNSET


class Items(msgspec.Struct, frozen=True, kw_only=True):
    """What a lease got; perhaps nothing."""

    items: list[Item]


class PutItems(msgspec.Struct, frozen=True, kw_only=True):
    """How many items were stored, and which were not acceptable."""

    accepted: int
    rejected: list[RejectedItem]


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """How many receipts were good, and the indexes of the others."""

    done: int
    stale: list[int]


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    """How many items are ready to be leased; with `dry_run`, how many would be."""

    ready: int


class Deleted(msgspec.Struct, frozen=True, kw_only=True):
    """The queue is gone."""


class ShownSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a queue."""

    over: str
    partitions: int
    lease_s: float
    max_attempts: int
    repeat_ms: int
    keep_s: float


class ShownQueue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue: items that can be leased, are leased, wait for a delay, and are dead letters.

    In the list all is null of a queue that this worker cannot ask at present.
    """

    queue: str
    ready: int | None = None
    leased: int | None = None
    waiting: int | None = None
    dead: int | None = None
    oldest_age_s: float | None = None
    settings: ShownSettings | None = None


class ShownQueues(msgspec.Struct, frozen=True, kw_only=True):
    """All queues."""

    queues: list[ShownQueue]


def parse(body: bytes, kind: type[S]) -> S:
    """The request in a JSON body; an empty one is `{}`. Raises RequestUnreadable or InvalidInput."""
    try:
        return msgspec.json.decode(body or b"{}", type=kind)
    except msgspec.ValidationError as error:
        raise InvalidInput(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RequestUnreadable(f"the body is not JSON: {error}") from None


def shown_item(handed: HandedOut) -> Item:
    """The item as its client gets it."""
    leased, record = handed.leased, handed.record
    is_data = is_json(record.value)
    return Item(
        receipt=handed.receipt,
        id=record.id or None,
        attempt=leased.attempt,
        enqueued_at=record.append_ms,
        until=leased.until_ms,
        headers=record.headers,
        data=msgspec.Raw(record.value) if is_data else msgspec.UNSET,
        raw=msgspec.UNSET if is_data else base64.b64encode(record.value).decode(),
    )


def shown_settings(settings: QueueSettings) -> ShownSettings:
    """The settings in the units of requests."""
    return ShownSettings(
        over=settings.over,
        partitions=settings.partitions,
        lease_s=settings.lease_ms / 1000,
        max_attempts=settings.max_attempts,
        repeat_ms=settings.repeat_ms,
        keep_s=settings.keep_ms / 1000,
    )
