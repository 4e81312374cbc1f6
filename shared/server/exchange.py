"""One request of a connection, and who answers it.

`connection.py` makes an exchange when the headers are complete; `queue.py` starts it when all earlier ones
are answered. The producer's door answers fragments from a callback, without a task; `asgi.py` asks an ASGI
app for everything else; a `RefusedExchange` only says why not.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

import msgspec
from fastapi import Response

from shared.server.answers import CONTINUE, Pairs
from shared.server.outlet import Outlet


class Head(msgspec.Struct, gc=False):
    """What the headers of a request say. `path` is decoded, `query` is not; header names are in lower case.

    `named` are the headers by name, a repeated one as a list with commas. `length` is that of the body, 0 if
    it is unknown. `is_last`: the client wants no further answer on this connection.
    `expects_continue`: it waits for a 100 before it sends the body.
    """

    method: str
    target: bytes
    path: str
    query: bytes
    headers: list[tuple[bytes, bytes]]
    named: dict[bytes, bytes]
    version: str
    length: int
    is_last: bool
    expects_continue: bool

    def __repr__(self) -> str:
        return f"<Head {self.method} {self.path}>"

    def values(self, name: bytes) -> tuple[bytes, ...]:
        """The values of the headers of this name."""
        if len(self.named) < len(self.headers):
            return tuple(value for one, value in self.headers if one == name)
        return (self.named[name],) if name in self.named else ()


class Line(Protocol):
    """What an exchange needs of its connection. `tasks` are those that a stop of the server cancels."""

    @property
    def outlet(self) -> Outlet: ...

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    @property
    def tasks(self) -> set[asyncio.Task[None]]: ...

    def respond(self, exchange: Exchange, status: int, headers: Pairs, body: bytes) -> None:
        """Writes the whole answer, unless the client is gone."""
        ...

    def begin(self, exchange: Exchange, status: int, headers: Pairs) -> None:
        """Writes the status and the headers of an answer."""
        ...

    def answered(self, exchange: Exchange) -> None:
        """The answer is complete: the next request may run."""
        ...

    def resume(self) -> None:
        """Reads on: the exchange has taken what had arrived."""
        ...


class Exchange(ABC):
    """`body` is what has arrived and was not taken yet, `size` its bytes; `is_whole`: nothing more comes.

    `is_last`: the connection ends after the answer. `is_lost`: nobody waits for an answer any more.
    """

    # set on the class, because most requests change few of them
    size = 0
    is_whole = False
    is_answered = False
    is_lost = False

    def __init__(self, line: Line, head: Head) -> None:
        self.line = line
        self.head = head
        self.body: list[bytes] = []
        self.is_last = head.is_last

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.head!r}>"

    @property
    def has_begun(self) -> bool:
        """Whether a part of the answer is written."""
        return False

    @property
    def is_behind(self) -> bool:
        """Whether nothing more should be read, because what has arrived is not taken."""
        return False

    @abstractmethod
    def start(self) -> None:
        """It is its turn; its body, or a part of it, may be here."""

    @abstractmethod
    def arrived(self) -> None:
        """More of the body is here, or it is whole now. Only while it is running."""

    def ask_for_body(self) -> None:
        """Sends a 100 to a client that waits for it."""
        if self.head.expects_continue and not self.is_whole:
            self.line.outlet.write(CONTINUE)
        self.head.expects_continue = False

    def lose(self) -> None:
        """The client is gone."""
        self.is_lost = True
        self.drop_body()

    @abstractmethod
    def cut(self) -> None:
        """A stop does not wait for the answer any longer. Only while it is running."""

    def drop_body(self) -> None:
        """Frees what has arrived."""
        if self.size:
            self.body = []
            self.size = 0


class RefusedExchange(Exchange):
    """Gets its refusal in its turn, and is the last one."""

    def __init__(self, line: Line, head: Head, refusal: Callable[[], Response]) -> None:
        super().__init__(line, head)
        self.is_last = True
        self._refusal = refusal

    def start(self) -> None:
        answer = self._refusal()
        self.line.respond(self, answer.status_code, tuple(answer.raw_headers), bytes(answer.body))

    def arrived(self) -> None:
        """Nothing arrives: it is answered as it starts."""

    def cut(self) -> None:
        """It is answered as it starts."""
