"""Clients of a queue, or of a bare app, over sockets: one process, one request at a time on each connection.

`python -m bench.queue_load KIND PORTS CONNECTIONS MAX SECONDS [LATE]` prints a JSON object. KIND `queue`:
each client leases `MAX` items and acks them, again and again; `LATE` is the share of leases that it gives
back instead. KIND `bare`: each client posts what looks like an ack. PORTS are separated by commas.
"""

from __future__ import annotations

import gc
import json
import random
import select
import socket
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

WARM_UP_S = 0.5
DEADLINE_S = 30.0
QUEUE = "bench"
Kind = Literal["lease", "ack", "release", "bare"]


class Numbered(msgspec.Struct):
    """What an item holds that matters here: its number in the order of the puts."""

    n: int


class Item(msgspec.Struct):
    """What a client needs of a leased item."""

    receipt: str
    data: Numbered


class Leased(msgspec.Struct):
    """The answer to a lease."""

    items: list[Item]


@dataclass(slots=True)
class Client:
    """One connection, what it asked for last and when, and the answer so far."""

    socket: socket.socket
    host: str
    asked: Kind = "lease"
    sent_s: float = 0.0
    received: bytes = b""
    numbers: list[int] = field(default_factory=list)
    """Of the items that it holds."""


_decode = msgspec.json.Decoder(Leased).decode


class Load:
    """Clients at work; `taken_s` has the answers' delays by kind, after the warm-up."""

    def __init__(self, kind: str, ports: Sequence[int], connections: int, most: int, late: float) -> None:
        self.taken_s: dict[Kind, list[float]] = {"lease": [], "ack": [], "release": [], "bare": []}
        self.numbers: list[int] = []
        """Of the items that were acked, in the order in which clients got them."""
        self.answers = self.empty = 0
        self._is_bare = kind == "bare"
        self._late, self._rng = late, random.Random(1)
        self._lease = b'{"max":%d,"wait_s":1}' % most
        self._clients: dict[int, Client] = {}
        for number in range(connections):
            port = ports[number % len(ports)]
            link = socket.create_connection(("127.0.0.1", port), DEADLINE_S)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._clients[link.fileno()] = Client(link, f"127.0.0.1:{port}")

    def run(self, seconds: float) -> float:
        """Works for `seconds` after the warm-up, and returns the measured seconds."""
        poll = select.epoll()
        for number, client in self._clients.items():
            poll.register(number, select.EPOLLIN)
            self._go_on(client, [])
        gc.disable()
        clock = time.perf_counter
        begun_s = clock() + WARM_UP_S
        end_s = begun_s + seconds
        while clock() < end_s:
            ready = poll.poll(DEADLINE_S)
            if not ready:
                raise RuntimeError(f"no answer for {DEADLINE_S} s")
            for number, _ in ready:
                client = self._clients[number]
                body = self._answer(client)
                if body is not None:
                    now_s = clock()
                    self.answers += 1
                    if now_s > begun_s:
                        self.taken_s[client.asked].append(now_s - client.sent_s)
                    self._go_on(client, _decode(body).items if client.asked == "lease" else [])
        return clock() - begun_s

    def _go_on(self, client: Client, items: list[Item]) -> None:
        """Settles what it got; or leases, or posts, again."""
        if self._is_bare:
            self._send(client, "bare", b'{"key":"0/1234567/7654321","n":["0/1234567/7654321"]}')
            return
        if not items:
            self.empty += client.asked == "lease" and client.sent_s > 0
            self._send(client, "lease", self._lease)
            return
        is_late = self._late > 0 and self._rng.random() < self._late
        if not is_late:
            self.numbers += [item.data.n for item in items]
        receipts = b'","'.join(item.receipt.encode() for item in items)
        self._send(client, "release" if is_late else "ack", b'{"receipts":["%b"]}' % receipts)

    def _send(self, client: Client, kind: Kind, body: bytes) -> None:
        path = "/" if kind == "bare" else f"/queues/{QUEUE}/{kind}"
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {client.host}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        client.asked, client.sent_s = kind, time.perf_counter()
        client.socket.sendall(head.encode() + body)

    def _answer(self, client: Client) -> bytes | None:
        """The body of the answer, once it is there."""
        some = client.socket.recv(1 << 18)
        if not some:
            raise RuntimeError("the server has closed a connection")
        client.received += some
        head, end, body = client.received.partition(b"\r\n\r\n")
        if not end or len(body) < int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]):
            return None
        if not head.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"refused: {client.received!r}")
        client.received = b""
        return body


def distance(numbers: Sequence[int]) -> float:
    """Blizzard's measure of order: how far an item is from its place, on average.

    >>> distance([1, 2, 3]), distance([2, 1, 3])
    (0.0, 0.6666666666666666)
    """
    places = {n: place for place, n in enumerate(sorted(numbers))}
    return statistics.fmean(abs(places[n] - at) for at, n in enumerate(numbers)) if numbers else 0.0


def main(kind: str, ports: Sequence[int], connections: int, most: int, seconds: float, late: float) -> None:
    """Prints what the clients saw; rates are per second after the warm-up."""
    load = Load(kind, ports, connections, most, late)
    cpu_s = time.process_time()
    measured_s = load.run(seconds)
    found: dict[str, Any] = {
        "answers": load.answers,
        "empty": load.empty,
        "items": len(load.numbers),
        "seconds": measured_s + WARM_UP_S,
        "rate": sum(map(len, load.taken_s.values())) / measured_s,
        "distance": distance(load.numbers),
        "cpu_s": time.process_time() - cpu_s,
    }
    for one, taken_s in load.taken_s.items():
        taken_s.sort()
        found[f"{one}_rate"] = len(taken_s) / measured_s
        for percent in (50, 99):
            found[f"{one}_p{percent}_ms"] = taken_s[len(taken_s) * percent // 100] * 1000 if taken_s else 0.0
    print(json.dumps(found))


if __name__ == "__main__":
    main(
        sys.argv[1],
        [int(port) for port in sys.argv[2].split(",")],
        int(sys.argv[3]),
        int(sys.argv[4]),
        float(sys.argv[5]),
        float(sys.argv[6]) if len(sys.argv) > 6 else 0.0,
    )
