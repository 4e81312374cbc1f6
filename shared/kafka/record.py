"""Names what everything about Kafka speaks of: a partition, and a record with its key, value and headers."""

from __future__ import annotations

Partition = tuple[str, int]
"""Topic and number."""
Headers = list[tuple[str, bytes]]
Record = tuple[bytes | None, bytes | None, Headers]
"""Key, value and headers."""
