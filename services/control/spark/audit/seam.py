"""What an audit leaves out of the log of a group that follows another one (docs/protocol.md).

Such a group starts at an offset of each stream. Sessions of the followed groups that began below their cuts
and reach the start stand for their fragments, so the group's own fold skips these. Read from the sessions
topics in Spark alone; shares no code with `services/consumer`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from services.control.spark.kafka.log import offsets, read_log, settled_end, topic_partitions
from services.control.spark.run.request import RunRequest
from shared.errors import NotFound
from shared.model.start import Cut, reaching_cuts

_SESSION = "key string, stream int, first_offset long, last_offset long, log long"
_CUT = "at int, number long, below long, start long"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seam:
    """`starts`: by stream, where the group starts; without those that begin where their log does. `covered`:
    stream and key → the last offset that stands in a session of a followed group.
    """

    starts: Mapping[int, int] = field(default_factory=dict)
    covered: Mapping[tuple[int, bytes], int] = field(default_factory=dict)

    def is_cut(self, stream: int, offset: int) -> bool:
        """Whether records are missing before the offset, from which the stream's log is read."""
        return offset > self.starts.get(stream, 0)

    def covers(self, stream: int, key: bytes, offset: int) -> bool:
        """Whether the fragment stands in a session of a followed group."""
        return offset <= self.covered.get((stream, key), -1)


def read_seam(spark: SparkSession, request: RunRequest, started_over: Collection[int]) -> Seam:
    """The seam of the request's group; `started_over`: streams that read the present log from its beginning.

    Raises KafkaUnavailable, InvalidInput.
    """
    if not request.chain:
        return Seam()
    streams = [stream for stream in range(request.streams) if stream not in started_over]
    wanted = {stream: request.chain[0].offset(stream) for stream in streams}
    starts = {stream: start for stream, start in wanted.items() if start}
    by_group: dict[str, list[tuple[int, Cut]]] = {}
    for stream in starts:
        for cut in reaching_cuts(request.chain, stream):
            by_group.setdefault(cut.group, []).append((stream, cut))
    covered: dict[tuple[int, bytes], int] = {}
    for group, cuts in by_group.items():
        for stream, key, last in _reaching(spark, request, group, starts, cuts):
            name = stream, key.encode()
            covered[name] = max(last, covered.get(name, -1))
    return Seam(starts=starts, covered=covered)


def _reaching(
    spark: SparkSession,
    request: RunRequest,
    group: str,
    starts: Mapping[int, int],
    cuts: list[tuple[int, Cut]],
) -> list[tuple[int, str, int]]:
    """Stream, key and last offset of the group's current sessions that reach the start."""
    try:
        partitions = topic_partitions(spark, request.kafka, [request.names.sessions(group)])
    except NotFound:
        return []  # no member of that group has ever run
    end = settled_end(spark, request.kafka, partitions)
    start = offsets(spark, request.kafka, partitions, "start")
    rows = [(stream, cut.log, cut.below, starts[stream]) for stream, cut in cuts]
    limits = f.broadcast(spark.createDataFrame(rows, _CUT))
    records = read_log(spark, request.kafka, start, end)
    session = f.from_json(f.col("value").cast("string"), _SESSION)
    found = (
        records.select(session.alias("one"))
        .select("one.*")
        .fillna(0, ["log"])
        .join(limits, (f.col("stream") == f.col("at")) & (f.col("log") == f.col("number")))
        .where("first_offset < below AND last_offset >= start")
        .groupBy("stream", "key")
        .agg(f.max("last_offset").alias("last"))
    )
    return [(one.stream, one.key, one.last) for one in found.collect()]
