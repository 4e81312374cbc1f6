"""What services find out about topics that exist already on a real broker."""

from __future__ import annotations

import pytest

from shared.kafka.admin.catalog import TopicSpec
from shared.kafka.admin.topics import MIN_INSYNC, ensure_topics


async def test_topics_that_acknowledge_too_early_are_reported(
    kafka: str, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker reports the value in force, also when the topic has only the broker's."""
    names = [f"{namespace}.a", f"{namespace}.b"]
    specs = [TopicSpec(name=name) for name in names]

    created = await ensure_topics(kafka, specs, 1)
    again = await ensure_topics(kafka, specs, 1)
    before = [record.message for record in caplog.records]
    await ensure_topics(kafka, specs, 3)

    assert (created, again) == (names, [])
    assert MIN_INSYNC not in "".join(before)
    (found,) = [record for record in caplog.records if MIN_INSYNC in record.message]
    assert vars(found)["topics"] == f"{names[0]} has 1, {names[1]} has 1"
    assert (vars(found)["count"], vars(found)["needed"]) == (2, 2)
