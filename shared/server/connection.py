"""One HTTP/1.1 connection: has its requests answered one by one, and bounds every wait and every turn.

A `POST /fragments` costs no task, no future and no ASGI message: the door answers it from a callback, when
Kafka acknowledges. Everything else is asked of the ASGI app. Uvicorn accepts connections and knows them for a
stop; `reader.py` parses, `queue.py` keeps the order. docs/adr/0021 says what no server bounds by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from fastapi import Response
from uvicorn.config import Config
from uvicorn.server import ServerState

from shared.server.answers import Pairs
from shared.server.bounds import Bounds
from shared.server.exchange import Exchange, Head
from shared.server.face import Face
from shared.server.outlet import Outlet
from shared.server.patience import Awaited, Patience
from shared.server.queue import RequestQueue
from shared.server.reader import Refused, RequestReader
from shared.service.http import problem
from shared.service.inflight import Overloaded
from shared.service.refusals import refusal

TURN_S = 0.005
"""How long a connection may read on before others have their turn; one body may take longer."""
TURN_ANSWERS = 32
"""How many of its requests may be answered in a turn."""


class HttpConnection(asyncio.Protocol):
    """`requests` are those that are not answered. `_reads`: False once nothing more is to be read.

    `_is_excess`: the connection is beyond the bound, and gets one answer. `_answered` counts the answers of
    a turn that ends at `_until_s` (0: not yet known). `_held` bytes wait unparsed for the next turn; `_then`:
    what is to be done once they are parsed.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        face: Face,
        bounds: Bounds,
    ) -> None:
        self._face = face
        self._state = server_state
        self.tasks = server_state.tasks
        self._bounds = bounds
        self._heads = face.heads(lambda: server_state.default_headers)
        self._reader = RequestReader(self)
        # kept, because looking for it costs a system call each time (getpid)
        self.loop = _loop or asyncio.get_running_loop()
        self._patience = Patience(bounds, self.loop, self._on_late)
        self.requests = RequestQueue(face.inflight)
        self.outlet: Outlet = cast(Outlet, None)
        self._is_excess = self._is_in_turn = False
        self._reads = True
        self._answered = self._held = 0
        self._until_s = 0.0
        self._then: Callable[[], object] | None = None

    def __repr__(self) -> str:
        return f"<HttpConnection: {self.requests!r}, {self._patience!r}>"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.outlet = Outlet(cast(asyncio.Transport, transport))
        self._state.connections.add(cast(Any, self))
        self._is_excess = not self._bounds.connections.admit()
        if self._is_excess:
            self._bounds.reserve.add(self, self._cut_off)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._state.connections.discard(cast(Any, self))
        if self._is_excess:
            self._bounds.reserve.discard(self)
        else:
            self._bounds.connections.release()
        self.outlet.lose()
        self._patience.stop()
        self._reader.close()
        self._then = None
        self.requests.lose()
        self._hold(0)

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        reader.unread = b"".join((reader.unread, data)) if reader.unread else data
        self._take_turn()

    def eof_received(self) -> bool:
        """A client that has sent everything and closed its half is still answered, except over TLS."""
        if self._reader.unread:
            self._then = self.eof_received
            return True
        last, latest = self.requests.last, self.requests.latest
        is_answerable = last is not None and last is latest and last.is_whole
        if self.outlet.is_over or not is_answerable or not self.outlet.can_end_apart:
            self._close()
            return False
        assert last is not None
        last.is_last = True
        return True

    def pause_writing(self) -> None:
        self.requests.is_held = True
        self.outlet.fill(True)
        self._watch()

    def resume_writing(self) -> None:
        self.requests.is_held = False
        self.outlet.fill(False)
        self._take_turn()

    def shutdown(self) -> None:
        """Ends the connection once everything that has arrived is answered (uvicorn asks, at a stop)."""
        if self._reader.unread:
            self._then = self.shutdown
            return
        last = self.requests.last
        if last is None:
            self._close()
        else:
            last.is_last = True

    def cut(self) -> None:
        """Waits no longer: what runs is answered now, and so is what waits (runtime.py asks, at a stop)."""
        while True:
            self.requests.start_next()
            running = self.requests.running
            if running is None:
                return
            running.cut()
            if running is self.requests.running:  # its task will answer
                return

    def on_head(self, head: Head) -> bool:
        """See Events."""
        requests = self.requests
        latest = requests.latest
        if latest is not None and latest.is_last:
            return False
        if requests.waiting and requests.is_full:
            self._end_after(requests.waiting[-1])
            return False
        exchange = self._excess_exchange(head) if self._is_excess else self._face.exchange(self, head)
        starts = not self._answered or not self._is_turn_over()
        return requests.add(exchange, starts) or self._overflow()

    def on_body(self, data: bytes) -> bool:
        """See Events."""
        return self.requests.add_body(data) or self._overflow()

    def on_end(self) -> None:
        """See Events."""
        self.requests.end_body()

    def begin(self, exchange: Exchange, status: int, headers: Pairs) -> None:
        """See Line."""
        if not exchange.is_whole:
            self._end_unless_asked(exchange)
        self.outlet.write(self._heads.head(status, headers, is_last=exchange.is_last))

    def respond(self, exchange: Exchange, status: int, headers: Pairs, body: bytes) -> None:
        """See Line."""
        if not exchange.is_whole:
            self._end_unless_asked(exchange)
        self.outlet.write(self._heads.head(status, headers, is_last=exchange.is_last) + body)
        self.answered(exchange)

    def answered(self, exchange: Exchange) -> None:
        """See Line."""
        exchange.is_answered = True
        self._answered += 1
        exchange.drop_body()
        self.requests.running = None
        if exchange.is_last:
            self._close()
        if self._is_in_turn:  # its end does the rest
            return
        if self.requests.waiting and not self._held:
            # not at once: until then it may turn out that the client is gone
            self.loop.call_soon(self._take_turn)
        self._watch()

    def resume(self) -> None:
        """See Line."""
        self._watch()

    def _take_turn(self) -> None:
        """Starts requests that wait and parses what has arrived, until others have their turn."""
        reader, requests = self._reader, self.requests
        if self.outlet.is_over:
            reader.stop()
        self._is_in_turn = True
        self._answered, self._until_s = 0, 0.0
        try:
            if requests.waiting:
                while requests.start_next() and not self._is_turn_over():
                    pass
            elif reader.unread:
                reader.step()
            # what another piece brings must be answered in this turn, or find room to wait
            while reader.unread and self._answered <= TURN_ANSWERS // 2 and not self._is_turn_over():
                reader.step()
        except Refused as error:
            self._reject(error.status, error.kind, error.detail)
        self._is_in_turn = False
        latest = requests.latest
        if latest is not None and not latest.is_whole:
            requests.take_body()
        if reader.unread or self._held or requests.waiting:
            self._hold(len(reader.unread))
        self._watch()

    def _is_turn_over(self) -> bool:
        """Whether others have their turn before another request of this connection may start."""
        now_s = self._bounds.now_s
        if not self._until_s:  # so a request that arrives alone does not cost a look at the clock
            self._until_s = now_s() + TURN_S
        return self._answered >= TURN_ANSWERS or now_s() >= self._until_s

    def _hold(self, unread: int) -> None:
        """Keeps what is left for the next turn; bytes count like requests that wait."""
        inflight = self._face.inflight
        inflight.add_waiting(0, unread - self._held)
        self._held = unread
        if unread and not inflight.has_room_to_wait():
            self._reader.stop()
            self._refuse(refusal(Overloaded()), "overloaded")
            self._hold(0)
            return
        if unread or self.requests.can_start:
            self.loop.call_soon(self._take_turn)
        if not unread and self._then is not None:
            then, self._then = self._then, None
            then()

    def _end_unless_asked(self, exchange: Exchange) -> None:
        """Ends the connection after an answer to a client that was not asked for its body.

        It may send it or not: where its next request begins is unknown.
        """
        if exchange.head.expects_continue:
            self._end_after(exchange)

    def _excess_exchange(self, head: Head) -> Exchange:
        exchange = self._face.excess_exchange(self, head, self._bounds.connections)
        self._end_after(exchange)
        return exchange

    def _overflow(self) -> bool:
        """There is no room for the latest request to wait: it gets a 429 in its turn, as the last one."""
        latest = self.requests.latest
        assert latest is not None
        refused = self._face.overload_exchange(self, latest.head)
        self.requests.replace_latest(refused)
        self._end_after(refused)
        return False

    def _watch(self) -> None:
        """Waits for what must come next, and reads only if there is room for more."""
        if self._is_in_turn:  # once, at its end
            return
        outlet, requests, reader = self.outlet, self.requests, self._reader
        if outlet.is_over:
            self._patience.expect(Awaited.END, 0)
            return
        running, latest = requests.running, requests.latest
        is_behind = running is not None and running.is_behind
        pauses = is_behind or outlet.is_full or not self._reads or bool(requests.waiting or reader.unread)
        if pauses is not outlet.is_paused and outlet.pause_reading(pauses):
            self._patience.begin_anew()  # the client could not send until now
        if outlet.is_full:
            awaited = Awaited.READER
        elif not self._reads or reader.unread:
            awaited = Awaited.NOTHING
        elif reader.is_in_headers or latest is None:
            awaited = Awaited.HEADERS
        elif not latest.is_whole:
            awaited = Awaited.BODY
        else:
            awaited = Awaited.IDLE if running is None and not requests.waiting else Awaited.NOTHING
        self._patience.expect(awaited, reader.begun)

    def _on_late(self, awaited: Awaited) -> None:
        """What was awaited has not come."""
        if awaited in (Awaited.IDLE, Awaited.READER, Awaited.END):
            # close() would wait for a client that does not read
            self.outlet.transport.abort()
        elif self.outlet.is_paused or (awaited is Awaited.HEADERS and self.requests.last is not None):
            pass  # the delay is ours
        elif awaited is Awaited.HEADERS:
            if self._reader.begun:
                self._reject(408, "slow-request", "the request's headers did not arrive in time")
            else:
                self._close()
        elif not self.requests.waiting:
            self._reject(408, "slow-request", "the request's body did not arrive in time")
        self._watch()

    def _reject(self, status: int, kind: str, detail: str) -> None:
        self._refuse(problem(status, kind, detail), kind)

    def _refuse(self, answer: Response, kind: str) -> None:
        """Refuses what cannot be read on, unless others must be answered first, and ends the connection."""
        requests, latest = self.requests, self.requests.latest
        if self.outlet.is_over:
            return
        head = None
        if self._reader.is_in_headers or latest is None or latest.is_whole:
            if requests.last is not None:
                # the client would take the refusal for the answer to an earlier request
                self._end_after(requests.last)
                return
        elif latest is not requests.running or latest.has_begun:
            self._end()
            return
        else:
            head = latest.head
            requests.lose()
        answer = self._face.rejected(answer, kind, head)
        lines = self._heads.head(answer.status_code, tuple(answer.raw_headers), is_last=True)
        self.outlet.write(lines + bytes(answer.body))
        self._end()

    def _end_after(self, last: Exchange) -> None:
        """Makes a request the last one, and reads nothing more."""
        last.is_last = self.outlet.may_reset = True
        self._reads = False

    def _end(self) -> None:
        """Ends the connection although the client may be sending."""
        self.outlet.may_reset = True
        self._close()

    def _close(self) -> None:
        self.outlet.close()
        self._watch()

    def _cut_off(self) -> None:
        """Ends a connection beyond the bound in favour of a newer one."""
        if not self.outlet.is_over:
            self._face.count_cut_off()
        self.outlet.transport.abort()
