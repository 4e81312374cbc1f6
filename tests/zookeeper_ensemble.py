"""ZooKeeper servers that replicate: one is as good as a `ZooKeeperServer`, three outlive any one of them."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from tests.server_groups import ServerGroup
from tests.servers import ZooKeeperServer, free_port

SYNC_TICKS = 4
"""A follower that is silent for so many ticks of 500 ms is given up, and so is a leader."""
SERVER = "org.apache.zookeeper.server.ZooKeeperServerMain"
PEER = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
ASK_S = 1.0


class ZooKeeperPeer(ZooKeeperServer):
    """One server of an ensemble; `peers`: the addresses of all for each other, by number."""

    def __init__(self, home: Path, number: int, peers: dict[int, str]) -> None:
        super().__init__(home)
        self.number = number
        self._peers = peers
        peers[number] = f"127.0.0.1:{free_port()}:{free_port()}"

    def prepare(self) -> None:
        super().prepare()
        (self.options.data / "myid").write_text(str(self.number))
        # a single one would warn, and run alone
        peers = self._peers if len(self._peers) > 1 else {}
        lines = [f"initLimit={2 * SYNC_TICKS}", f"syncLimit={SYNC_TICKS}"]
        lines += [f"server.{number}={address}" for number, address in peers.items()]
        with self.options.config.open("a") as config:
            config.write("\n".join([*lines, ""]))

    def argv(self) -> list[str]:
        return [PEER if one == SERVER else one for one in super().argv()]

    async def mode(self) -> str:
        """`leader`, `follower`, `standalone`, or nothing if it does not serve."""
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(ASK_S):
                reader, writer = await asyncio.open_connection("127.0.0.1", self.options.port)
                with contextlib.closing(writer):
                    writer.write(b"srvr")
                    _, _, mode = (await reader.read()).decode().partition("Mode: ")
                    return mode.partition("\n")[0]
        return ""


class ZooKeeperEnsemble(ServerGroup[ZooKeeperPeer]):
    """`count` servers in folders of `home`."""

    def __init__(self, home: Path, count: int = 3) -> None:
        peers: dict[int, str] = {}
        for number in range(1, count + 1):
            (home / str(number)).mkdir()
        super().__init__({n: ZooKeeperPeer(home / str(n), n, peers) for n in range(1, count + 1)})

    async def is_whole(self) -> bool:
        """Whether every server serves."""
        return all([await node.mode() for node in self.nodes.values()])

    async def shrunk(self) -> str:
        """Who leads."""
        modes = {number: await node.mode() for number, node in self.nodes.items()}
        leading = [str(number) for number, mode in modes.items() if mode == "leader"]
        return f"led by {' and '.join(leading) or 'none'}"
