"""What a SIGKILL costs the streams of a member under a steady load, on real servers, with default settings.

A killed member's streams go to the others, or back to its own next process where there are no others. Each
figure is of one stream: from the signal, or from the end of its claim, to the first session that the next
owner delivers.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from dataclasses import dataclass, field

import msgspec
from aiokafka import AIOKafkaConsumer, TopicPartition

from bench.group import DEADLINE_S, SESSION_PARTITIONS, Group, Rows, is_balanced, now_ms
from bench.report import Row
from shared.model.names import DEFAULT_GROUP

STREAMS, RATE = 6, 1_000.0
OPEN_BYTES = 1_500_000
"""Per stream: a replay then has 3,300 fragments, plus those since the last commit."""
KILLS = 6
SETTLED_S = 4.0
"""A younger member claims only what was its own: it would measure `BATON_SETTLE_S`."""
MOVE_AT_WILL = {"BATON_REST_S": "0", "BATON_STEADY_S": "0"}


@dataclass(slots=True)
class Ends:
    """Seconds until the next owner's first session, per stream: since the signal, since the claim's end."""

    since_kill_s: list[float] = field(default_factory=list)
    since_claim_s: list[float] = field(default_factory=list)

    def add(self, other: Ends) -> None:
        """Adds the figures of another kill."""
        self.since_kill_s += other.since_kill_s
        self.since_claim_s += other.since_claim_s

    def rows(self, name: str, target: str = "") -> list[Row]:
        """Both figures."""
        label = f"{name}, {len(self.since_kill_s)} streams: from SIGKILL to the first new session"
        return [
            Row(name=label, unit="s", baton=self.since_kill_s, baseline=[], target=target),
            Row(
                name="the same, from the end of the claim",
                unit="s",
                baton=self.since_claim_s,
                baseline=[],
                target="",
            ),
        ]


def run(kafka: str, zookeeper: str) -> list[Row]:
    """Takes about 4 minutes."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it logs errors while topics are created
    return asyncio.run(_measure(kafka, zookeeper))


async def _measure(kafka: str, zookeeper: str) -> list[Row]:
    """Kills of one of three members, one after the other; then of a lone member that is started again."""
    async with Group(kafka, zookeeper, "bench-failover", STREAMS, MOVE_AT_WILL) as group:
        for name in "abc":
            group.start(name)
        group.start_load(RATE, OPEN_BYTES)
        taken_over, restarted = Ends(), Ends()
        for _, name in zip(range(KILLS), itertools.cycle("abc"), strict=False):
            await _settle(group)
            taken_over.add(await fail_over(group, name))
            group.start(name)
        await _settle(group)
        for name in "bc":
            await group.stop(name)
        for _ in range(KILLS):
            await _settle(group)
            restarted.add(await fail_over(group, "a", is_restarted=True))
        return [
            *taken_over.rows(f"failover of {KILLS} members", "median ≤ 1"),
            *restarted.rows(f"restart of a lone member, {KILLS} times, with the start of the process"),
        ]


async def _settle(group: Group) -> None:
    await group.until(lambda rows: is_balanced(rows) and is_caught_up(rows))
    await asyncio.sleep(SETTLED_S)


def is_caught_up(rows: Rows) -> bool:
    """Whether the members have nearly read the logs."""
    return all(0 < row["position"] > row["end"] - 500 for row in itertools.chain(*rows.values()))


class _Delivered(msgspec.Struct):
    stream: int
    epoch: int


async def fail_over(group: Group, victim: str, *, is_restarted: bool = False) -> Ends:
    """Kills a member, and starts it again at once if `is_restarted`; the figures of its streams."""
    claims = group.names.claims(DEFAULT_GROUP)
    gone_ms: dict[int, float] = {}
    epochs: dict[int, int] = {}

    def watch(path: str) -> None:
        gone_ms.setdefault(int(path.rpartition("/")[2]), now_ms())

    for stream in range(group.streams):
        znode = await group.znodes.get(f"{claims}/{stream}", watch=watch)
        claim = msgspec.json.decode(znode.data) if znode is not None else {}
        if claim.get("member") == victim:
            epochs[stream] = claim["epoch"]
    consumer = AIOKafkaConsumer(bootstrap_servers=group.kafka, isolation_level="read_committed")
    async with consumer:
        topic = group.names.sessions(DEFAULT_GROUP)
        consumer.assign([TopicPartition(topic, n) for n in range(SESSION_PARTITIONS)])
        await consumer.seek_to_end()
        killed_ms = now_ms()
        group.kill(victim)
        if is_restarted:
            group.start(victim)
        first_ms = await _first_sessions_ms(consumer, epochs)
    return Ends(
        since_kill_s=[(first_ms[stream] - killed_ms) / 1000 for stream in sorted(first_ms)],
        since_claim_s=[(first_ms[stream] - gone_ms[stream]) / 1000 for stream in sorted(first_ms)],
    )


async def _first_sessions_ms(consumer: AIOKafkaConsumer, epochs: dict[int, int]) -> dict[int, float]:
    """When the first session of each of these streams came that is of a later epoch."""
    first_ms: dict[int, float] = {}
    decode = msgspec.json.Decoder(_Delivered).decode
    async with asyncio.timeout(DEADLINE_S):
        while first_ms.keys() != epochs.keys():
            for batch in (await consumer.getmany(timeout_ms=100)).values():
                for one in map(decode, (record.value for record in batch)):
                    if one.epoch > epochs.get(one.stream, one.epoch):
                        first_ms.setdefault(one.stream, now_ms())
    return first_ms
