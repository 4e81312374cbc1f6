"""The load of `front_door.py` as a process: requests over kept connections, each after the last response.

`python -m bench.load PORT PATH CONNECTIONS BATCH SECONDS` prints one JSON object. Each connection has one
request in flight. It is a bare epoll loop over blocking sockets with requests built beforehand, so that one
core is enough for it and the broker. Any response other than 200 ends it.
"""

from __future__ import annotations

import gc
import json
import random
import select
import socket
import sys
import time
from array import array
from dataclasses import dataclass

KEYS = 5_000
FRAGMENT_BYTES = 1_000
BODIES = 128
"""Different requests; each connection cycles through all of them from another start."""
WARM_UP_S = 0.5
DEADLINE_S = 30.0
SEND_BUFFER = 1024 * 1024
"""Holds a whole request, so that sending never waits for the server."""


@dataclass(slots=True)
class Connection:
    """One socket, the index of its next request, when the last one was sent, and the response so far."""

    socket: socket.socket
    at: int
    sent_s: float = 0.0
    received: bytes = b""


def fragment(dice: random.Random) -> str:
    """A fragment of `FRAGMENT_BYTES` bytes."""
    time_ms = 1_700_000_000_000 + dice.randrange(10**9)
    head = f'{{"key":"visitor-{dice.randrange(KEYS)}","time":{time_ms},"data":{{"text":"'
    return head + "x" * (FRAGMENT_BYTES - len(head) - 3) + '"}}'


def make_requests(port: int, path: str, batch: int) -> list[bytes]:
    """Requests with one JSON object each, or with an array of `batch`."""
    dice = random.Random(1)
    made = []
    for _ in range(BODIES):
        fragments = [fragment(dice) for _ in range(batch)]
        body = (fragments[0] if batch == 1 else f"[{','.join(fragments)}]").encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        made.append(head.encode() + body)
    return made


class Load:
    """Sends on every connection; `latencies_s` has the responses after the warm-up."""

    def __init__(self, port: int, path: str, connections: int, batch: int) -> None:
        self.latencies_s = array("d")
        self.answers = 0
        self._requests = make_requests(port, path, batch)
        self._lengths: dict[bytes, int] = {}
        self._connections: dict[int, Connection] = {}
        for number in range(connections):
            link = socket.create_connection(("127.0.0.1", port), DEADLINE_S)
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
            self._connections[link.fileno()] = Connection(link, number % BODIES)

    def run(self, seconds: float) -> float:
        """Sends for `seconds` after the warm-up and returns the measured seconds."""
        poll = select.epoll()
        for number, connection in self._connections.items():
            poll.register(number, select.EPOLLIN)
            self._send(connection)
        gc.disable()
        clock, latencies_s = time.perf_counter, self.latencies_s
        begun_s = clock() + WARM_UP_S
        end_s = begun_s + seconds
        while clock() < end_s:
            ready = poll.poll(DEADLINE_S)
            if not ready:
                raise RuntimeError(f"no answer for {DEADLINE_S} s")
            for number, _ in ready:
                connection = self._connections[number]
                if self._is_answered(connection):
                    now_s = clock()
                    self.answers += 1
                    if now_s > begun_s:
                        latencies_s.append(now_s - connection.sent_s)
                    self._send(connection)
        return clock() - begun_s

    def _send(self, connection: Connection) -> None:
        request = self._requests[connection.at]
        connection.at = (connection.at + 1) % BODIES
        connection.sent_s = time.perf_counter()
        connection.socket.sendall(request)

    def _is_answered(self, connection: Connection) -> bool:
        received = connection.received + connection.socket.recv(65_536)
        end = received.find(b"\r\n\r\n")
        if end >= 0 and len(received) >= end + 4 + self._length(received[:end]):
            connection.received = b""
            return True
        if received == connection.received:
            raise RuntimeError("the server has closed a connection")
        connection.received = received
        return False

    def _length(self, head: bytes) -> int:
        # response heads differ only in their date, so few of them have to be parsed
        length = self._lengths.get(head)
        if length is None:
            if not head.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(f"refused: {head!r}")
            length = self._lengths[head] = int(
                head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]
            )
        return length


def main(port: int, path: str, connections: int, batch: int, seconds: float) -> None:
    """Prints the measurement; `answers` includes the warm-up, rate and latencies do not."""
    load = Load(port, path, connections, batch)
    cpu_s = time.process_time()
    measured_s = load.run(seconds)
    cpu_s = time.process_time() - cpu_s
    found = sorted(load.latencies_s)
    result = {
        "answers": load.answers,
        "seconds": measured_s + WARM_UP_S,
        "rate": len(found) / measured_s,
        "p50_ms": found[len(found) // 2] * 1000,
        "p99_ms": found[len(found) * 99 // 100] * 1000,
        "cpu_s": cpu_s,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
