"""Shows a lease to its client as a receipt, and reads it again, at any worker.

A receipt says which item was leased by which record of the log, under a code (keyed BLAKE2b) over the queue's
name. The key is the queue's incarnation: drawn at its creation, in every record of its log, and in no answer.
So a receipt can neither be guessed nor be used at another queue, nor at one made anew under the same name.
Used by worker/leasing.py.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from typing import Final

from services.queue.core.commands import Receipt

CODE_BYTES: Final = 12
# 19 digits may exceed 64 bits, and `\d` would allow other scripts
_place = re.compile("([0-9]{1,18})/([0-9]{1,18})/([0-9]{1,18})/[A-Za-z0-9_-]{16}").fullmatch


def show_receipt(receipt: Receipt, queue: str, incarnation: bytes) -> str:
    """The receipt as clients carry it.

    >>> show_receipt(Receipt(0, 17, 203), "mail", b"drawn")
    '0/17/203/oVed--MscleUTU_M'
    """
    place = f"{receipt.partition}/{receipt.offset}/{receipt.lease}"
    code = hashlib.blake2b(f"{queue}/{place}".encode(), key=incarnation, digest_size=CODE_BYTES).digest()
    return f"{place}/{base64.urlsafe_b64encode(code).decode()}"


def read_receipt(text: str, queue: str, incarnation: bytes) -> Receipt | None:
    """The receipt in a client's text; None if this queue has never given it out.

    >>> read_receipt("0/17/203/oVed--MscleUTU_M", "mail", b"drawn")
    Receipt(partition=0, offset=17, lease=203)
    >>> read_receipt("0/17/203/oVed--MscleUTU_M", "mail", b"drawn anew")
    """
    found = _place(text)
    if found is None:
        return None
    receipt = Receipt(*map(int, found.groups()))
    is_own = hmac.compare_digest(show_receipt(receipt, queue, incarnation), text)
    return receipt if is_own else None
