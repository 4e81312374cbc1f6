"""What a broker's error code is to the caller: a right that the principal lacks, or something else."""

from __future__ import annotations

from typing import Final

from aiokafka.errors import for_code

from shared.errors import KafkaDenied, KafkaUnavailable

NO_RIGHT: Final = frozenset({29, 30, 31, 53})
"""Error codes: not authorized for the topic, the group, the cluster, the transactional id."""


def reason_of(code: int) -> str:
    """The name of the error; for a missing right, that it is one.

    >>> reason_of(29), reason_of(56)
    ('TopicAuthorizationFailedError, a right is missing', 'KafkaStorageError')
    """
    name = str(for_code(code).__name__)
    return f"{name}, a right is missing" if code in NO_RIGHT else name


def refusal(what: str, code: int) -> KafkaUnavailable:
    """The error to raise: KafkaDenied for a missing right, which may be granted later."""
    return (KafkaDenied if code in NO_RIGHT else KafkaUnavailable)(what, cause=reason_of(code))
