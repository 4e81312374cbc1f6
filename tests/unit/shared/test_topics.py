"""The settings with which Baton creates its topics."""

from __future__ import annotations

from shared.kafka.topics import MAX_RECORD_BYTES, checkpoints_topic
from shared.model.names import Names


def test_trimmed_checkpoints_leave_the_disk_soon() -> None:
    """Kafka deletes whole segments only, and never the newest one of a partition: with its default of 1 GB
    every stream would keep that much, however small its checkpoint is."""
    configs = checkpoints_topic(Names(), "default", 288).configs

    assert int(configs.get("segment.bytes", 1024**3)) <= 32 * 1024**2
    assert int(configs["segment.bytes"]) >= 4 * MAX_RECORD_BYTES
    assert (configs["retention.ms"], configs["retention.bytes"]) == ("-1", "-1")
