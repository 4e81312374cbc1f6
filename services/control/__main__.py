"""Serves control, and stops it in order. `wiring.py` makes its parts.

It answers from its start, with 503 until it has read the cluster, so it may start before everything else.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys

from services.control.http.api.access.access import Access
from services.control.http.api.access.tokens import Tokens
from services.control.http.app import create_app
from services.control.live.garbage import keep_collections_short
from services.control.settings import END, ControlSettings
from services.control.wiring import control_on
from shared.server.bounds import bounds_for
from shared.server.face import Face
from shared.server.listener import http_server
from shared.service.runtime import main


async def serve(settings: ControlSettings, stop: asyncio.Event) -> None:
    """Runs control until `stop`. Then ends the drivers if `runs_at_stop` says so, and closes its clients."""
    async with contextlib.AsyncExitStack() as stack:
        control = await control_on(settings, stack)
        access = _access(settings)
        await access.step()
        app = create_app(
            control.parts,
            hosts=settings.own_hosts,
            access=access,
            root_path=settings.root_path,
            proxies=settings.believed_proxies,
        )
        keep_collections_short()
        loops = {**control.loops, "tokens": access.run}
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(loop(), name=name) for name, loop in loops.items()]
            try:
                async with http_server(
                    Face(app), settings.host, settings.port, bounds=bounds_for(settings), tls=settings.tls
                ):
                    await stop.wait()
                    # otherwise the server would wait for the followers to leave
                    control.parts.feed.close()
                    control.parts.hub.close()
            finally:
                for task in tasks:
                    task.cancel()
                if settings.runs_at_stop == END:
                    await control.runner.stop()


def _access(settings: ControlSettings) -> Access:
    tokens = None if settings.tokens_file is None else Tokens(settings.tokens_file)
    is_open, is_read_only = settings.control_open == "1", settings.read_only == "1"
    return Access(tokens, is_open=is_open, is_read_only=is_read_only)


if __name__ == "__main__":
    sys.exit(main("control", ControlSettings, serve))
