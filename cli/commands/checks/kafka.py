"""Checks of Kafka: do all brokers answer, and have Baton's topics what the exactly-once promise needs?

The `judge_…` are pure; the others read what they judge.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from cli.commands.checks.findings import Finding, ok, wrong
from cli.kafka.connection import connected
from shared.errors import KafkaUnavailable
from shared.kafka.admin.catalog import Replicas, TopicSpec, hear_from, list_all, read_replicas, read_settings
from shared.kafka.admin.topics import (
    MIN_INSYNC,
    checkpoints_topic,
    events_topic,
    fragments_topics,
    history_topic,
    needed_insync,
    rejected_topic,
    sessions_topic,
)
from shared.kafka.connect.access import Kafka
from shared.kafka.connect.cluster import Cluster
from shared.model.names import Names

EXACT = ("cleanup.policy", "message.timestamp.type")
"""Settings that must be as Baton creates them."""
AT_LEAST = ("max.message.bytes",)
KEPT = ("retention.ms", "retention.bytes")
"""Of checkpoints these must not delete anything; of other topics they are the operator's choice."""
KAFKAS_OWN = ("__consumer_offsets", "__transaction_state")
"""Heads and transactions live here: they must outlive a broker like the rest."""
SAFE_REPLICAS = 3
READ_AT_ONCE = 500
"""Topics whose settings are asked for in one request."""
Settings = Mapping[str, str]


async def check_brokers(kafka: Kafka) -> list[Finding]:
    """A finding for each broker. Raises KafkaUnavailable when none answers."""
    findings = []
    async with connected(kafka) as cluster:
        for node in cluster.nodes:
            about = f"kafka {cluster.name_of(node)}"
            try:
                await hear_from(cluster, node)
            except KafkaUnavailable as error:
                findings.append(
                    wrong(about, error.detail, "start it, or make its advertised address reachable")
                )
            else:
                findings.append(ok(about, "answers"))
    return findings


async def check_topics(kafka: Kafka, names: Names) -> list[Finding]:
    """Findings on Baton's topics: one for each that is wrong, one for all others. Raises KafkaUnavailable."""
    async with connected(kafka) as cluster:
        existing = set(await list_all(cluster))
        specs = expected_topics(names, existing)
        replicas = await read_replicas(cluster, [*specs, *(existing & {*KAFKAS_OWN})])
        settings = await _read_all(cluster, sorted(replicas))
        brokers = len(cluster.nodes)
    if not any(names.stream_of(topic) is not None for topic in existing):
        todo = "start a producer, which creates them; check BATON_KAFKA and BATON_NAMESPACE"
        return [wrong("topics", "there are no fragments topics", todo)]
    findings = [judge_missing(name, names) for name in specs if name not in existing]
    for name in sorted(replicas):
        spec = specs.get(name, TopicSpec(name=name))
        findings += judge_topic(spec, replicas[name], settings[name], brokers)
    streams = {name: settings[name] for name in replicas if names.stream_of(name) is not None}
    findings += judge_retention(streams)
    faulty = {finding.about for finding in findings}
    good = sum(f"topic {name}" not in faulty for name in replicas)
    return [*findings, ok("topics", f"{good:,} of {len(replicas):,} as they should be")]


def judge_missing(topic: str, names: Names) -> Finding:
    """What to do about a topic that should exist: whoever creates its kind does so at its start."""
    creator = "a producer" if names.stream_of(topic) is not None else "a member of its group"
    return wrong(
        f"topic {topic}", "it does not exist", f"restart {creator}, which creates it if it has the right"
    )


def expected_topics(names: Names, existing: set[str]) -> dict[str, TopicSpec]:
    """The topics that Baton should have, given those that exist: its streams, and its groups.

    A group has `sessions` and `checkpoints`, so either of them names it.
    """
    streams = [stream for topic in existing if (stream := names.stream_of(topic)) is not None]
    count = max(streams, default=-1) + 1
    prefix = names.checkpoints("")
    groups = sorted(topic.removeprefix(prefix) for topic in existing if topic.startswith(prefix))
    specs = fragments_topics(names, count, 0)
    for group in groups:
        specs += [sessions_topic(names, group, 1, 0), checkpoints_topic(names, group, count)]
    # created by the first process that writes to them
    rest = (events_topic(names), history_topic(names), rejected_topic(names))
    specs += [spec for spec in rest if spec.name in existing]
    checkpoints = {names.checkpoints(group) for group in groups}
    return {
        spec.name: replace(spec, configs=_judged(spec, is_kept=spec.name in checkpoints)) for spec in specs
    }


def _judged(spec: TopicSpec, *, is_kept: bool) -> dict[str, str]:
    wanted = (*EXACT, *AT_LEAST, *(KEPT if is_kept else ()))
    return {name: value for name, value in spec.configs.items() if name in wanted}


def judge_topic(
    spec: TopicSpec, partitions: Sequence[Replicas], settings: Settings, brokers: int
) -> list[Finding]:
    """What is wrong with a topic; `spec.configs` has the settings that are judged."""
    about = f"topic {spec.name}"
    findings = []
    for name, value in spec.configs.items():
        found = settings.get(name, "")
        is_enough = name in AT_LEAST and int(found or 0) >= int(value)
        if found != value and not is_enough:
            says = f"{name} is {found or 'unset'}, not {value}"
            findings.append(wrong(about, says, f"baton kafka settings {spec.name} {name}={value}"))
    least, wanted = min((one.replicas for one in partitions), default=0), min(SAFE_REPLICAS, brokers)
    if least < wanted:
        says = f"{least} replica{'s' * (least != 1)} on {brokers} brokers"
        todo = f"add replicas by Kafka's reassignment, and set BATON_REPLICATION={wanted} for new topics"
        findings.append(wrong(about, says, todo))
    return findings + _judge_insync(spec.name, partitions, int(settings.get(MIN_INSYNC, "1")), least)


def _judge_insync(topic: str, partitions: Sequence[Replicas], insync: int, least: int) -> list[Finding]:
    about, needed = f"topic {topic}", needed_insync(least)
    findings = []
    if insync < needed:
        says = f"{MIN_INSYNC} is {insync}: a record can be acknowledged that one broker has alone"
        findings.append(wrong(about, says, f"baton kafka settings {topic} {MIN_INSYNC}={needed}"))
    if insync > least:
        says = f"{MIN_INSYNC} is {insync}, but there are {least} replicas: nothing can be written"
        findings.append(wrong(about, says, f"baton kafka settings {topic} {MIN_INSYNC}={needed}"))
        return findings
    leaderless = sum(one.leader < 0 for one in partitions)
    behind = sum(one.in_sync < one.replicas for one in partitions)
    stopped = sum(one.in_sync < insync for one in partitions)
    if leaderless or stopped:
        says = f"{max(leaderless, stopped)} of {len(partitions)} partitions cannot be written"
        findings.append(wrong(about, says, "start the brokers that have its replicas"))
    elif behind:
        says = f"{behind} of {len(partitions)} partitions have replicas that are not in step"
        findings.append(wrong(about, says, "start the missing brokers, or wait until they have caught up"))
    return findings


def judge_retention(streams: Mapping[str, Settings]) -> list[Finding]:
    """Streams whose retention differs from that of most: they would lose fragments earlier, or keep them."""
    kept = Counter(settings.get("retention.ms", "") for settings in streams.values())
    if len(kept) < 2:
        return []
    usual = kept.most_common(1)[0][0]
    return [
        wrong(
            f"topic {topic}",
            f"retention.ms is {settings.get('retention.ms')}, that of most streams {usual}",
            f"baton kafka settings {topic} retention.ms={usual}",
        )
        for topic, settings in sorted(streams.items())
        if settings.get("retention.ms", "") != usual
    ]


async def _read_all(cluster: Cluster, topics: Sequence[str]) -> dict[str, dict[str, str]]:
    names = [*EXACT, *AT_LEAST, *KEPT, MIN_INSYNC]
    found: dict[str, dict[str, str]] = {}
    for start in range(0, len(topics), READ_AT_ONCE):
        some = await read_settings(cluster, topics[start : start + READ_AT_ONCE], names)
        found |= {
            topic: {name: one.value for name, one in settings.items()} for topic, settings in some.items()
        }
    return found
