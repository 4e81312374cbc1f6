"""Checks that Kafka stamps fragments with its own time: sessions end by it (docs/protocol.md).

The copy that a mirror makes bears the source's times, so its topics keep what they are given (`CreateTime`).
Whoever wrote there would bring in the clocks of senders. `baton mirror take-over` ends that. Producers ask
before they accept anything, members before they join.
"""

from __future__ import annotations

import contextlib

from shared.errors import KafkaDenied, KafkaUnavailable
from shared.kafka.admin.catalog import list_all, read_settings
from shared.kafka.connect.access import Kafka
from shared.kafka.connect.cluster import Cluster
from shared.model.names import Names

TIMES = "message.timestamp.type"
BROKER_TIME = "LogAppendTime"


class TimesNotOfBroker(KafkaUnavailable):
    """Topics of fragments do not bear the broker's time, for now."""


async def check_append_times(kafka: Kafka, names: Names) -> None:
    """Returns if all existing topics of streams bear the broker's time, or the settings may not be read.

    Raises TimesNotOfBroker, KafkaUnavailable.
    """
    async with Cluster(kafka) as cluster:
        topics = sorted(one for one in await list_all(cluster) if names.stream_of(one) is not None)
        if not topics:
            return
        with contextlib.suppress(KafkaDenied):  # an operator may forbid to ask
            found = await read_settings(cluster, topics, [TIMES])
            wrong = [topic for topic in topics if found[topic][TIMES].value != BROKER_TIME]
            if wrong:
                raise TimesNotOfBroker(
                    f"{wrong[0]} and {len(wrong) - 1} other topics have {TIMES}=CreateTime"
                    if len(wrong) > 1
                    else f"{wrong[0]} has {TIMES}=CreateTime",
                    cause="it is the copy of another cluster: `baton mirror take-over` makes it writable",
                )
