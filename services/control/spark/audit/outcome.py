"""The verdict of a whole audit, from its numbers and the delivery that the group promises.

Pure. Users read it first, and the command line, the demo and programs decide by it whether an audit passes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

EXACT: Final = "exact"
NOTHING_JUDGED: Final = "nothing judged"
DIFFERS: Final = "differs"
WITHIN: Final = "within the promise of {}"

NEVER: Final = (
    *("extra", "different", "misrouted", "split_keys"),
    *("lake_missing", "lake_extra", "lake_different", "lake_duplicated", "lake_days"),
    "reports_different",
)
"""Numbers that must be 0 in every delivery."""


def verdict_of(numbers: Mapping[str, int], delivery: str) -> str:
    """The verdict in words.

    A difference that the delivery does not permit decides, even if nothing else was judged. `at_most_once`
    may lose sessions, and `at_least_once` may repeat them.

    >>> verdict_of({"judged": 9, "missing": 1}, "at_most_once")
    'within the promise of at_most_once'
    """
    if any(numbers.get(name) for name in NEVER):
        return DIFFERS
    missing, duplicates = numbers.get("missing", 0) + numbers.get("overdue", 0), numbers.get("duplicates", 0)
    if (missing and delivery != "at_most_once") or (duplicates and delivery != "at_least_once"):
        return DIFFERS
    if not numbers.get("judged"):
        return NOTHING_JUDGED
    return WITHIN.format(delivery) if missing or duplicates else EXACT
