"""An exchange whose body counts as in flight while it arrives, and until the exchange lets go of it.

The producer's door and the queue's exchange build on it; `shared/service/inflight.py` has the bounds.
"""

from __future__ import annotations

from abc import abstractmethod

from shared.errors import BatonError
from shared.model.form import Coding, Form, Wrapping
from shared.server.exchange import Exchange
from shared.service.inflight import InflightShare, Overloaded, decode_body

_PLAIN = Wrapping(form=Form.JSON, coding=Coding.IDENTITY)


class CountedExchange(Exchange):
    """`_share` is what it occupies, until `_release`; `_wrapping` is what its headers say about the body."""

    _share: InflightShare | None = None
    _wrapping = _PLAIN
    _counted = 0
    _is_uploading = False

    @abstractmethod
    def _refuse(self, error: BatonError) -> None:
        """Answers with this error, unless it is answered or lost; lets go of the body."""

    def _count_body(self, share: InflightShare) -> None:
        """Counts what has arrived since the last time. Raises RequestTooLarge or Overloaded."""
        arrived, self._counted = self.size - self._counted, self.size
        if self._is_uploading and self.is_whole:
            share.end_upload()
        share.add(arrived)
        if not self.is_whole and not self._is_uploading:
            self._is_uploading = True
            share.begin_upload(lambda: self._refuse(Overloaded()))

    def _whole_body(self, share: InflightShare) -> bytes:
        """The decoded body. Raises RequestUnreadable, RequestTooLarge or Overloaded."""
        pieces, coding = self.body, self._wrapping.coding
        self.body = []
        if coding is not Coding.IDENTITY:
            pieces = decode_body(pieces, coding, share)
        return b"".join(pieces)

    def _release(self) -> None:
        share, self._share = self._share, None
        if share is not None:
            share.release()
