"""Server-sent events out of the bytes of a response, as the HTML standard says (section 9.2.6).

Pure. Not by lines of text, since what Python takes for the end of a line may stand in the middle of JSON.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One event. Without `data` there is nothing but an id to keep in mind, or a remark to a person."""

    id: str = ""
    data: str = ""
    comment: str = ""


class ServerSentEvents:
    """Takes bytes as they come; gives whole events.

    >>> events = ServerSentEvents()
    >>> events.feed(b"id: 7\\nda"), events.feed(b"ta: {}\\n\\n: so\\n")
    ([], [ServerSentEvent(id='7', data='{}', comment='')])
    """

    def __init__(self) -> None:
        self._rest = b""
        self._id = ""
        self._data: list[str] = []
        self._comments: list[str] = []

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """The events that end in this chunk; one that has not ended waits for the next."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        found = []
        for line in lines:
            text = line.removesuffix(b"\r").decode(errors="replace")
            if text:
                self._take(text)
            elif event := self._whole():
                found.append(event)
        return found

    def _take(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "":
            self._comments.append(value)
        elif name == "data":
            self._data.append(value)
        elif name == "id":
            self._id = value

    def _whole(self) -> ServerSentEvent | None:
        event = ServerSentEvent(self._id, "\n".join(self._data), " ".join(self._comments).strip())
        self._id, self._data, self._comments = "", [], []
        return event if event != ServerSentEvent() else None
