"""One id for a reject, however often it is replayed and rejected again; and which rejects are still open.

Pure. A replay inserts `"id":"rejected/<partition>/<offset>",` into what it sends (cli/rejects/replay.py), so
a fragment that is rejected again says where it was rejected first. That place stays its id. Any client could
post such a text; so two records count as one reject only if the rest of their bytes is the same, too.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from cli.kafka.rejects import StoredReject

_INSERTED = re.compile(
    rb"(?P<before>(?:\xef\xbb\xbf)?[ \t\r\n]*\{)"
    rb'"id":"rejected/(?P<partition>\d{1,10})/(?P<offset>\d{1,19})",?'
)
_SPACE = b" \t\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Posted:
    """A reject without what replays inserted: where it was rejected first, and the first posted bytes.

    `size` is that of the whole text; `value` may be cut.
    """

    partition: int
    offset: int
    value: bytes
    size: int

    @property
    def id(self) -> str:
        """`<partition>/<offset>`."""
        return f"{self.partition}/{self.offset}"

    @property
    def identity(self) -> str:
        """The same for all records of one reject."""
        # a producer stores an item of a batch without the space around it
        return f"{self.id}:{hashlib.blake2b(self.value.strip(_SPACE), digest_size=8).hexdigest()}"


def posted_of(stored: StoredReject) -> Posted:
    """The reject as it was first posted.

    A text that was replayed by an earlier version has an id for each replay; the innermost is the first.
    """
    partition, offset, value = stored.partition, stored.offset, stored.reject.value
    while found := _INSERTED.match(value):
        partition, offset = int(found["partition"]), int(found["offset"])
        value = found["before"] + value[found.end() :]
    size = stored.reject.size - (len(stored.reject.value) - len(value))
    return Posted(partition=partition, offset=offset, value=value, size=size)


class OpenRejects:
    """Which records stand for a reject that still matters; `add` every record first, in any order.

    Holds one entry for each reject that was rejected again or dismissed, and none for the others.
    """

    def __init__(self) -> None:
        self._newest: dict[str, tuple[int, int, int]] = {}
        self._dismissed: set[str] = set()

    def __repr__(self) -> str:
        return f"<OpenRejects: {len(self._newest)} rejected again, {len(self._dismissed)} dismissed>"

    def add(self, page: Iterable[StoredReject]) -> None:
        """Notes the records of a page."""
        for stored in page:
            self._dismissed |= stored.dismisses
            posted = posted_of(stored)
            if (posted.partition, posted.offset) != (stored.partition, stored.offset):
                identity, order = posted.identity, _order(stored)
                self._newest[identity] = max(order, self._newest.get(identity, order))

    def is_newest(self, stored: StoredReject) -> bool:
        """Whether this record is the last rejection of its reject."""
        newest = self._newest.get(posted_of(stored).identity) if self._newest else None
        return not stored.dismisses and newest in (None, _order(stored))

    def is_dismissed(self, stored: StoredReject) -> bool:
        """Whether an operator dismissed the reject."""
        return bool(self._dismissed) and posted_of(stored).identity in self._dismissed

    def is_open(self, stored: StoredReject) -> bool:
        """Whether this record is the last rejection of a reject that is not dismissed."""
        return self.is_newest(stored) and not self.is_dismissed(stored)


def _order(stored: StoredReject) -> tuple[int, int, int]:
    return stored.time_ms, stored.partition, stored.offset
