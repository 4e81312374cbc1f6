"""Keeps open pages current: one snapshot of a group for all viewers, as server-sent events.

A snapshot is computed once per reading of the cluster and encoded once; a viewer gets what has changed since
its last message, or the whole if it has missed one. A viewer has no queue, only the number of the snapshot
that it has reached, so a slow one holds up nobody and costs no memory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from services.control.core.events.recent_events import EventFilter
from services.control.core.report.rows import StreamRow
from services.control.http.console.drawing.beads import Bead, Colour, Scale, bead_of, scale_of
from services.control.http.console.live.work import Kind, WorkLog
from services.control.http.console.shown.queues import queue_cells
from services.control.http.console.shown.scene import Scene, facts, member_cells, stream_cells
from services.control.http.console.words import digest_of
from services.control.live.feed.feed import RECONNECT_MS, EventFeed
from services.control.live.feed.seats import Seats
from shared.errors import BatonError, Unavailable

QUIET_S: Final = 3.0
"""While nothing changes, viewers get a message this often (s), so pages know that control is still there."""
SLACK_S: Final = 2.0
"""How old a reading may be when it is sent, plus its way to the page (s), where control looks often."""
MOST_VIEWERS: Final = 500
"""Of all callers together, who share them fairly."""
MOST_EVENTS: Final = 100
logger = logging.getLogger(__name__)
_encode = msgspec.json.Encoder().encode

Reading = Mapping[str, Mapping[Any, Any]]
"""Texts and beads by part (`facts`, `members`, `beads`, `queues`) and name."""


class TooManyViewers(Unavailable):
    """The number of open pages has reached its limit."""


@dataclass(slots=True)
class Snapshot:
    """What all viewers of a group see, and what has changed since the snapshot before.

    `before`: the rows of that one. Pages show tables of a few streams: only their rows become texts.
    """

    number: int
    shape: str
    stale_ms: int
    reading: dict[str, dict[Any, Any]]
    changed: dict[str, dict[Any, Any]]
    rows: Sequence[StreamRow]
    before: Sequence[StreamRow]
    _encoded: dict[bool, bytes] = field(default_factory=dict)
    _messages: dict[tuple[tuple[int, ...], bool], bytes] = field(default_factory=dict)
    _cells: dict[int, tuple[tuple[str, ...], bool]] = field(default_factory=dict)

    def message(self, streams: Sequence[int], *, whole: bool) -> bytes:
        """The message `reading` for the viewers whose tables show these streams."""
        key = tuple(streams), whole
        if key not in self._messages:
            self._messages[key] = self._message(streams, whole=whole)
        return self._messages[key]

    def _message(self, streams: Sequence[int], *, whole: bool) -> bytes:
        if whole not in self._encoded:
            about = {"shape": self.shape, "stale_ms": self.stale_ms, "whole": whole}
            self._encoded[whole] = _encode(about | (self.reading if whole else self.changed))
        known = ((stream, *self._cells_of(stream)) for stream in streams if stream < len(self.rows))
        shown = {stream: cells for stream, cells, is_news in known if whole or is_news}
        body = self._encoded[whole]
        if shown:
            body = b'%b,"rows":%b}' % (body[:-1], _encode(shown))
        return b"event: reading\ndata: %b\n\n" % body

    def _cells_of(self, stream: int) -> tuple[tuple[str, ...], bool]:
        """The texts of a stream's row, and whether they are others than before."""
        if stream not in self._cells:
            row, cells = self.rows[stream], stream_cells(self.rows[stream])
            old = self.before[stream] if stream < len(self.before) else None
            is_news = old is None or (old != row and stream_cells(old) != cells)
            self._cells[stream] = cells, is_news
        return self._cells[stream]


def shape_of(scene: Scene) -> str:
    """Names the rows and columns of a page; with another shape, the page must be drawn again."""
    return digest_of(str(len(scene.rows)), *(member.id for member in scene.members))


class Painter:
    """Turns scenes of one group into snapshots; a stream that did not change is not drawn again."""

    def __init__(self, colour: Colour) -> None:
        self._colour = colour
        self._rows: Sequence[StreamRow] = ()
        self._pins: Mapping[int, str] = {}
        self._scale: Scale | None = None
        self._beads: dict[int, Bead] = {}
        self._last: Snapshot | None = None

    def __repr__(self) -> str:
        return f"<Painter of {len(self._rows)} streams by {self._colour}>"

    def paint(self, scene: Scene, *, always: bool = False) -> Snapshot | None:
        """The next snapshot; None if nothing has changed, unless `always`."""
        scale = scale_of(scene.rows, self._colour)
        redo = scale != self._scale or scene.plan.pins != self._pins
        last = self._last
        is_same = last is not None and len(scene.rows) == len(self._rows)
        beads = dict(self._beads)
        for stream, row in enumerate(scene.rows):
            if redo or stream >= len(self._rows) or row != self._rows[stream]:
                is_same = False
                beads[stream] = bead_of(row, scale, scene.plan.pins)
        owned = scene.owned
        reading: dict[str, dict[Any, Any]] = {
            "facts": facts(scene),
            "members": {one.id: member_cells(one, owned[one.id]) for one in scene.members},
            "beads": beads,
            "queues": {row.queue: queue_cells(row) for row in scene.queues},
        }
        changed = {part: _news(found, last.reading[part] if last else {}) for part, found in reading.items()}
        if is_same and not always and not any(changed.values()):
            return None
        snapshot = Snapshot(
            number=last.number + 1 if last else 0,
            shape=shape_of(scene),
            stale_ms=scene.stale_ms,
            reading=reading,
            changed=changed,
            rows=scene.rows,
            before=self._rows,
        )
        self._rows, self._pins, self._scale, self._beads, self._last = (
            *(scene.rows, scene.plan.pins, scale, beads, snapshot),
        )
        return snapshot


def _id_line(event_id: int) -> bytes:
    """Tells the browser how far it is, so that it continues there; none before the first event."""
    return b"id: %d\n" % event_id if event_id >= 0 else b""


def _news(found: Mapping[Any, Any], known: Mapping[Any, Any]) -> dict[Any, Any]:
    return {name: value for name, value in found.items() if known.get(name) != value}


class _Channel:
    """The viewers of one group in one colour, and the task that paints for them."""

    def __init__(self, colour: Colour) -> None:
        self.painter = Painter(colour)
        self.snapshot: Snapshot | None = None
        self.changed = asyncio.Event()
        self.viewers = 0
        self.is_closed = False
        self.work = 0
        self.task: asyncio.Task[None] | None = None

    def wake(self) -> None:
        """Wakes every viewer; each waits on the event that it took before it looked."""
        self.changed.set()
        self.changed = asyncio.Event()


class LiveHub:
    """`follow` serves a page; `close` ends them all. `scene_of` raises BatonError while there is nothing."""

    def __init__(
        self,
        scene_of: Callable[[str], Scene],
        feed: EventFeed,
        *,
        every_s: float,
        work: WorkLog | None = None,
    ) -> None:
        self._scene_of = scene_of
        self._feed = feed
        self._work = work or WorkLog(lambda: ())
        self._every_s = every_s
        self._channels: dict[tuple[str, Colour], _Channel] = {}
        self._is_closed = False
        self.viewers = Seats(MOST_VIEWERS)

    def __repr__(self) -> str:
        return f"<LiveHub with {len(self.viewers)} viewers>"

    @property
    def stale_after_ms(self) -> int:
        """The age at which a page calls itself stale: that of a reading just before the next quiet one, with
        slack. A hub that looks seldom sends late, and what it sends is older."""
        return round((QUIET_S + max(SLACK_S, 3 * self._every_s)) * 1000)

    def close(self) -> None:
        """Ends every viewer's stream."""
        self._is_closed = True
        self._wake()

    def _wake(self) -> None:
        for channel in self._channels.values():
            channel.wake()

    def follow(
        self,
        group: str,
        colour: Colour,
        streams: Sequence[int],
        after: int | None,
        holder: str,
        work: Kind | None = None,
    ) -> AsyncGenerator[bytes]:
        """Messages `reading` and `event` for a page that shows these streams in a table.

        `after`: id of the last event that the page saw; if events after it are no longer known, the page gets
        a message `gone` and reads itself again. `holder`: the caller's name. `work`: also messages of this
        kind. Raises TooManyViewers, UnknownGroup, Unavailable.
        """
        self._scene_of(group)
        if not self.viewers.has_room(holder):
            raise TooManyViewers(f"{self.viewers.most} pages are open already")
        return self._follow(group, colour, streams, after, holder, work)

    async def _follow(
        self,
        group: str,
        colour: Colour,
        streams: Sequence[int],
        after: int | None,
        holder: str,
        work: Kind | None,
    ) -> AsyncGenerator[bytes]:
        channel, seat = self._enter(group, colour), self.viewers.take(holder)
        self._wake()  # one of the others may have lost its seat
        recent = self._feed.recent_events
        event_filter = EventFilter(group=group)
        event_id = recent.next_id - 1 if after is None else after
        reached, worked = -1, 0
        try:
            yield b"retry: %d\n%b\n" % (RECONNECT_MS, _id_line(event_id))
            while not (self._is_closed or channel.is_closed or seat.is_lost):
                changed = channel.changed
                # a control that has just started still reads what pages have seen
                if self._feed.is_read:
                    if not recent.is_known_after(event_id):
                        event_id = recent.next_id - 1
                        yield b"%bevent: gone\ndata: {}\n\n" % _id_line(event_id)
                    events, until = recent.after(event_id, MOST_EVENTS, event_filter), recent.next_id - 1
                    for stored in events:
                        yield b"id: %d\nevent: event\ndata: %b\n\n" % (stored.id, stored.row)
                    # events of other groups move the id too, so that it never leaves what control remembers
                    event_id = events[-1].id if len(events) == MOST_EVENTS else until
                if (snapshot := channel.snapshot) is not None and snapshot.number != reached:
                    whole = snapshot.number != reached + 1 or reached < 0
                    yield _id_line(event_id) + snapshot.message(streams, whole=whole)
                    reached = snapshot.number
                if work is not None:
                    news, worked = self._work.after(worked, work, group), self._work.number
                    if news:
                        yield b"".join(news)
                await changed.wait()
        finally:
            self.viewers.leave(seat)
            self._leave(group, colour, channel)

    def _enter(self, group: str, colour: Colour) -> _Channel:
        channel = self._channels.setdefault((group, colour), _Channel(colour))
        channel.viewers += 1
        if channel.task is None:
            channel.task = asyncio.create_task(self._paint(group, channel), name=f"paint {group}")
            channel.task.add_done_callback(lambda task: self._on_end(task, group, colour, channel))
        return channel

    def _on_end(self, task: asyncio.Task[None], group: str, colour: Colour, channel: _Channel) -> None:
        """Disconnects the viewers if painting has failed; they reconnect, and a new painter serves them."""
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("console not painted", extra={"group": group}, exc_info=error)
            channel.is_closed = True
            self._channels.pop((group, colour), None)
            channel.wake()

    def _leave(self, group: str, colour: Colour, channel: _Channel) -> None:
        channel.viewers -= 1
        if channel.viewers == 0 and not channel.is_closed and channel.task is not None:
            channel.task.cancel()
            del self._channels[group, colour]

    async def _paint(self, group: str, channel: _Channel) -> None:
        quiet_s = 0.0
        while True:
            next_id = self._feed.recent_events.next_id
            if self._work.look() != channel.work:
                channel.work = self._work.number
                channel.wake()
            try:
                snapshot = channel.painter.paint(self._scene_of(group), always=quiet_s >= QUIET_S)
            except BatonError:
                snapshot = None  # the page notices the silence, and says so
            if snapshot is not None:
                channel.snapshot, quiet_s = snapshot, 0.0
                channel.wake()
            await asyncio.sleep(self._every_s)
            quiet_s += self._every_s
            if self._feed.recent_events.next_id != next_id:
                channel.wake()
