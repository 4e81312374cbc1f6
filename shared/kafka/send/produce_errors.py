"""What a broker's answer to a produce request means for the batch: one table for all that write.

Source: Kafka's `Errors.java`, and where `ReplicaManager.appendRecords` raises each of them.
"""

from __future__ import annotations

from typing import Final

from shared.kafka.connect.cluster import MOVED

DUPLICATE: Final = 46
"""The batch was appended before, too long ago for the broker to know where."""
TRY_AGAIN: Final = MOVED | {7, 19, 20}
"""The partition has moved, or too few replicas have the batch. Whether it was appended or not, its sequence
numbers make another try harmless."""
REJECTED: Final = frozenset({2, 10, 17, 18, 21, 29, 31, 32, 42, 43, 44, 87})
"""The broker appended nothing and never will: checksum, size, topic, timestamp or format are wrong, a right
is missing, or a policy is against it."""
NEEDS_NEW_PRODUCER: Final = frozenset({45, 47, 59})
"""The broker knows another past of this producer than we do (its log lost records), and appended nothing."""
NOT_STORED: Final = REJECTED | NEEDS_NEW_PRODUCER | {3, 5, 19, 100}
"""A broker gives these before it appends. Of the others none is sure: also a broker that has just lost the
lead may have appended first. (Where the topic is unknown, what it held is gone.)"""
