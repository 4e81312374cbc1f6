"""How many random inputs a test tries; `make mutate` repeats each test thousands of times, so fewer there."""

from __future__ import annotations

import os

UNDER_MUTATION = "MUTANT_UNDER_TEST" in os.environ
"""mutmut sets the variable, also while it learns which tests reach which function."""


def effort(count: int) -> int:
    """`count` random inputs, or a tenth of them under mutation.

    >>> effort(3_000) in (3_000, 300)
    True
    """
    return max(1, count // 10) if UNDER_MUTATION else count
