"""Write keys of a running producer: changed without a restart, and never revealed."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from tests.integration.test_producer_service import JSON, Running, producer
from tests.waiting import until


async def status_with(running: Running, key: str, query: str = "") -> int:
    """The status for a fragment with this key, in a header, or else in the query."""
    headers = JSON if query else JSON | {"authorization": f"Bearer {key}"}
    path = f"/fragments?write_key={key}" if query else "/fragments"
    return (await running.client.post(path, content=b'{"key":"a"}', headers=headers)).status_code


async def until_status(running: Running, key: str, status: int) -> None:
    """Waits until the key gets the status."""

    async def is_so() -> bool:
        return await status_with(running, key) == status

    await until(is_so)


async def until_remark(running: Running) -> str:
    """The first remark of /readyz, which still answers 200."""

    async def remarks() -> list[str]:
        found: list[str] = (await running.until_ready()).json().get("remarks", [])
        return found

    return (await until(remarks))[0]


async def test_keys_are_rotated_without_a_restart(
    kafka: str, zookeeper: str, namespace: str, tmp_path: Path
) -> None:
    """Old, then both, then new; a broken file changes nothing; no log line contains a key."""
    file = tmp_path / "keys"
    file.write_text("# the web shop\nsecret-old\n")
    settings = {"kafka": kafka, "zookeeper": zookeeper, "namespace": namespace, "streams": 1}
    async with producer(
        **settings, write_keys_file=file, write_keys="secret-own", log_level="DEBUG"
    ) as running:
        await running.until_ready()
        began = running.process.pid
        at_first = [await status_with(running, key) for key in ("secret-own", "secret-old", "secret-new")]

        replace(file, "secret-old\nsecret-new\n")
        await until_status(running, "secret-new", 200)
        with_both = await status_with(running, "secret-old", "by the query")
        replace(file, "secret-new\n")
        await until_status(running, "secret-old", 403)
        file.write_text("")
        remark = await until_remark(running)
        broken = [await status_with(running, key) for key in ("secret-own", "secret-old", "secret-new")]
        without = await running.client.post("/fragments", content=b'{"key":"a"}', headers=JSON)
        metrics = (await running.client.get("/metrics")).text
        running.process.send_signal(signal.SIGTERM)
        _, log = await asyncio.wait_for(running.process.communicate(), 60)

    assert at_first == [200, 200, 403]
    assert with_both == 200
    assert broken == [200, 403, 200]
    assert (without.status_code, without.headers["www-authenticate"]) == (401, "Bearer")
    assert "BATON_WRITE_KEYS_FILE" in remark
    assert running.process.pid == began
    assert b'"keys loaded"' in log
    assert b'"keys not loaded"' in log
    assert b"secret" not in log
    assert "secret" not in metrics + remark


def replace(file: Path, content: str) -> None:
    """Replaces the content of the file atomically."""
    new = file.with_suffix(".new")
    new.write_text(content)
    os.replace(new, file)
