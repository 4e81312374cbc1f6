"""Faults in what is stored: committed offsets, znodes, a topic that refuses records; an operator repairs it.

Each waits until the services show the fault, repairs it as docs/operations.md says, and waits until every
stream works again.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Awaitable, Callable

import msgspec

from shared.errors import KafkaUnavailable, Unavailable
from tests.e2e.chaos_ground import Ground, Struck
from tests.e2e.chaos_operator import damage_heads, forget_heads, limit_sessions
from tests.e2e.chaos_world import World
from tests.waiting import until

NOT_JSON = b"\xff{"
FAILURES = 3
"""This many failures in a row are more than one unlucky life."""
REFUSED_BYTES = 200
"""Less than a session takes. A transaction's marker (78 bytes) still fits: a broker that cannot write it
never ends the transaction, not even when the limit is back.
"""


async def rewind_streams(ground: Ground) -> Struck:
    """The heads of all streams of a killed consumer are overwritten: their next owners stop in `rewind`.

    The operator deletes those committed offsets and restarts the owners, which find the heads in the
    checkpoints.
    """
    world = ground.world
    async with ground.victim() as victim:
        consumer = world.consumer(victim.index)
        await ground.at_a_commit(lambda: consumer.signal(signal.SIGKILL), of=victim.index)
        await consumer.ended()
        # its claims outlive it for a moment; a stream that it has handed over lives in another's memory
        streams = await world.claims_of(victim.index)
        await _until_in_rewind(world, streams)
        world.start_consumer(victim.index)
        at_once = len(await _in_rewind(world))
        await _repaired(lambda: forget_heads(world.where, streams))
        restarts = await _restart_owners(ground, streams)
    return Struck(f"{at_once} streams in rewind at once; {restarts} restarts of their owners", at_once)


async def damage_znodes(ground: Ground) -> Struck:
    """A member, a claim, a stream's node, the pins and the table become unreadable; each is noticed.

    The operator deletes the claim, and writes pins and table again; the rest is written anew by itself.
    """
    world, names, group = ground.world, ground.world.where.names, ground.world.where.group
    async with ground.victim() as victim:
        streams = [stream for stream, owner in (await world.claimed()).items() if owner == victim.index]
        stream = ground.rng.choice(streams)
        claim = names.claim(group, stream)
        paths = [
            names.member(group, f"consumer-{victim.index}"),
            claim,
            names.stream(group, stream),
            names.pins(group),
            names.table,
        ]
        table = await _read(world, names.table)
        since = world.log_ends
        for path in paths:
            await _write(world, path, NOT_JSON)

        def noticed() -> set[str]:
            return {line["path"] for line in world.logged("znode unreadable", since)} & set(paths)

        # another owner may have written a claim and the stream's node anew before anyone read them
        await until(
            lambda: len(noticed()) >= len(paths) - 2, lambda: f"only {noticed()} noticed:\n{world.tail()}"
        )
        await _write(world, names.pins(group), b"{}")
        await _write(world, names.table, table)
        await _write(world, claim, None)
        await until(lambda: _are_readable(world, paths), lambda: f"still unreadable:\n{world.tail()}")
        await world.claimed()
    kinds = sorted(path.split("/")[-2 if path[-1].isdigit() else -1] for path in noticed())
    return Struck(f"noticed: {', '.join(kinds)}", len(kinds))


async def fail_after_opening(ground: Ground) -> Struck:
    """The sessions topic refuses all records: streams open, read, and fail at the next commit, repeatedly."""
    world = ground.world
    seen: dict[int, int] = {}

    async def keep_failing() -> bool:
        for stream, row in (await world.rows()).items():
            failures = row["failures"] or 0  # null where the owner did not answer
            if failures >= FAILURES:
                seen[stream] = max(seen.get(stream, 0), failures)
        return len(seen) >= 2

    async def work() -> bool:
        rows = await world.rows()
        return bool(rows) and all(row["failures"] == 0 for row in rows.values())

    await ground.at_a_commit()
    await _repaired(lambda: limit_sessions(world.where, REFUSED_BYTES))
    try:
        await until(keep_failing, lambda: f"only {seen} fail:\n{world.tail()}")
    finally:
        await _repaired(lambda: limit_sessions(world.where, None))
    await until(work, lambda: f"some still fail:\n{world.tail()}")
    return Struck(f"{len(seen)} streams failed up to {max(seen.values())} times in a row", len(seen))


async def _in_rewind(world: World) -> dict[int, str | None]:
    """Stream → owner of those in `rewind`."""
    return {stream: row["owner"] for stream, row in (await world.rows()).items() if row["state"] == "rewind"}


async def _until_in_rewind(world: World, streams: set[int]) -> None:
    """Returns once all of them are in `rewind`; damages again what a commit under way has overwritten."""
    damaged: set[int] = set()

    async def is_so() -> bool:
        stuck = set(await _in_rewind(world))
        running = {stream for stream, row in (await world.rows()).items() if row["state"] == "running"}
        again = (streams - damaged) | (damaged & running - stuck)
        if again:
            with contextlib.suppress(KafkaUnavailable):
                await damage_heads(world.where, again)
                damaged.update(again)
        return streams <= stuck

    await until(is_so, lambda: f"not all of {streams} are in rewind:\n{world.tail()}")


async def _restart_owners(ground: Ground, streams: set[int]) -> int:
    """Restarts owners until none of the streams is in `rewind`; how many restarts that took."""
    world, restarts = ground.world, 0

    async def is_done() -> bool:
        nonlocal restarts
        rows = await world.rows()
        if not rows:
            return False
        stuck = {rows[stream]["owner"] for stream in streams if rows[stream]["state"] == "rewind"}
        owners = {int(owner.removeprefix("consumer-")) for owner in stuck if owner is not None}
        for index in sorted(owners & set(ground.free)):
            ground.busy.add(index)
            try:
                world.consumer(index).signal(signal.SIGTERM)
                await world.consumer(index).ended()
                world.start_consumer(index)
            finally:
                ground.busy.discard(index)
            restarts += 1
        return not stuck and all(rows[stream]["state"] == "running" for stream in streams)

    await until(is_done, lambda: f"still in rewind:\n{world.tail()}")
    return restarts


async def _repaired(repair: Callable[[], Awaitable[None]]) -> None:
    """Repeats a repair until Kafka is there."""

    async def is_done() -> bool:
        with contextlib.suppress(KafkaUnavailable):
            await repair()
            return True
        return False

    await until(is_done, lambda: "Kafka is away")


async def _read(world: World, path: str) -> bytes:
    """Data of a znode."""
    found: list[bytes] = []

    async def is_read() -> bool:
        with contextlib.suppress(Unavailable):
            znode = await world.znodes.get(path)
            found.append(znode.data if znode is not None else b"")
        return bool(found)

    await until(is_read, lambda: f"{path} cannot be read")
    return found[-1]


async def _write(world: World, path: str, data: bytes | None) -> None:
    """Writes a znode, creates it where it is missing and not a member's; None deletes it."""

    async def is_written() -> bool:
        with contextlib.suppress(Unavailable):
            if data is None:
                await world.znodes.delete(path)
            elif not await world.znodes.set(path, data):
                await world.znodes.create(path, data)
            return True
        return False

    await until(is_written, lambda: f"{path} cannot be written")


async def _are_readable(world: World, paths: list[str]) -> bool:
    """Whether each of them is JSON again, and exists."""
    try:
        znodes = [await world.znodes.get(path) for path in paths]
        return all(znode is not None and msgspec.json.decode(znode.data) is not None for znode in znodes)
    except (Unavailable, msgspec.DecodeError):
        return False
