"""The health check of Kafka's container against a real broker."""

from __future__ import annotations

from tests.unit.test_compose_kafka import check_health


def test_a_real_broker_is_healthy(kafka: str) -> None:
    """Kafka understands the request that the check writes by hand, and answers it."""
    assert check_health("kafka", int(kafka.rpartition(":")[2]))
