"""Parses server-sent events from the bytes of a response, as the HTML standard defines them (section 9.2.6).

Pure. It splits bytes at line feeds, not text into lines: Python's `splitlines` also breaks at U+2028, which
may occur inside JSON. It also keeps comments, unlike httpx-sse: control uses one to say that events are
missing, and `baton events -f` must show that.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One event. Without `data` it only carries an id to resume from, or a comment for a person."""

    id: str = ""
    data: str = ""
    comment: str = ""


class SseParser:
    """Accepts bytes in chunks of any size and returns whole events.

    >>> parser = SseParser()
    >>> parser.feed(b"id: 7\\nda"), parser.feed(b"ta: {}\\n\\n: so\\n")
    ([], [ServerSentEvent(id='7', data='{}', comment='')])
    """

    def __init__(self) -> None:
        self._rest = b""
        self._id = ""
        self._data: list[str] = []
        self._comments: list[str] = []

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """The events that end in this chunk; an unfinished one is kept for the next call."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        events = []
        for line in lines:
            # decoded line by line, so that a chunk may end inside a character
            text = line.removesuffix(b"\r").decode(errors="replace")
            if text:
                self._add_line(text)
            # a blank line ends an event; an empty one keeps the connection alive and is dropped
            elif event := self._finish_event():
                events.append(event)
        return events

    def _add_line(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "":
            self._comments.append(value)
        elif name == "data":
            self._data.append(value)
        # other fields (`event`, `retry`) are ignored: control sends no `event`, and we have our own back-off
        elif name == "id":
            self._id = value

    def _finish_event(self) -> ServerSentEvent | None:
        event = ServerSentEvent(self._id, "\n".join(self._data), " ".join(self._comments).strip())
        self._id, self._data, self._comments = "", [], []
        return event if event != ServerSentEvent() else None
