"""The HTTP faces of simulated members, in a process of their own: control asks them as it asks real ones.

Control's process hands it what the members would answer; it serves the newest of that. Run as
`python -m bench.simulated_members`: it prints its port, and ends when its input does.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Mapping
from typing import Final, Protocol

import msgspec

from services.control.adapters.processes.statuses import HttpMembers
from services.control.core.report.observed import Answers
from shared.model.cluster import MemberNode

HEADER: Final = 4
"""Bytes that say how long a message is."""
MOST: Final = 1 << 24
_encode = msgspec.json.Encoder().encode


class Members(Protocol):
    """What the members of a simulated cluster answer."""

    async def read_members(self, members: Mapping[tuple[str, str], MemberNode]) -> Answers:
        """The answers of all of them."""
        ...


class PolledMembers:
    """A `MemberSource` that hands the answers to the process, and then asks it for them over HTTP."""

    def __init__(self, world: Members, http: HttpMembers, process: Process, port: int) -> None:
        self._world = world
        self._http = http
        self._process = process
        self._base = f"http://127.0.0.1:{port}"

    def __repr__(self) -> str:
        return f"<PolledMembers at {self._base}>"

    async def read(self, members: Mapping[tuple[str, str], MemberNode]) -> Answers:
        """What the members answer now, or did a moment ago."""
        answers = await self._world.read_members(members)
        bodies = {f"/{name}/status": _encode(one) for (_, name), one in answers.statuses.items()}
        bodies |= {f"/{name}/plan": _encode(plan) for name, plan in answers.plans.values()}
        message = msgspec.msgpack.encode(bodies)
        assert self._process.stdin is not None
        self._process.stdin.write(len(message).to_bytes(HEADER) + message)
        await self._process.stdin.drain()
        return await self._http.read(
            {
                name: msgspec.structs.replace(node, address=f"{self._base}/{name[1]}")
                for name, node in members.items()
            }
        )


@contextlib.asynccontextmanager
async def polled(world: Members, http: HttpMembers) -> AsyncIterator[PolledMembers]:
    """The members of a world, served by a process that runs during the block."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.simulated_members"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        yield PolledMembers(world, http, process, int(await process.stdout.readline()))
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


class Faces:
    """Answers each path with the newest body for it."""

    def __init__(self) -> None:
        self._bodies: dict[str, bytes] = {}

    def __repr__(self) -> str:
        return f"<Faces with {len(self._bodies)} paths>"

    async def follow(self, given: asyncio.StreamReader) -> None:
        """Takes what control's process hands over, until that ends."""
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                length = int.from_bytes(await given.readexactly(HEADER))
                self._bodies = msgspec.msgpack.decode(await given.readexactly(length), type=dict[str, bytes])

    async def serve(self, asked: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        """Serves one connection."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = await asked.readuntil(b"\r\n\r\n")
                body = self._bodies.get(head.split(b" ", 2)[1].decode())
                status = b"404 Not Found" if body is None else b"200 OK"
                answers.write(
                    b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body or b""), body or b"")
                )
                await answers.drain()
        answers.close()


async def main() -> None:
    """Serves until the input ends."""
    faces, given = Faces(), asyncio.StreamReader(limit=MOST)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(given), sys.stdin)
    server = await asyncio.start_server(faces.serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await faces.follow(given)


if __name__ == "__main__":
    asyncio.run(main())
