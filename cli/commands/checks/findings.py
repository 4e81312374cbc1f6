"""What a check of `baton doctor` says: a subject, whether it is right, and what to do if it is not."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal, NamedTuple

from shared.errors import BatonError

State = Literal["ok", "wrong", "unknown"]
"""`unknown`: the check could not run, which says nothing about its subject."""


class Finding(NamedTuple):
    """One line; `todo` is empty unless something is wrong or unknown."""

    about: str
    state: State
    says: str
    todo: str = ""


def ok(about: str, says: str) -> Finding:
    """It is as it should be."""
    return Finding(about, "ok", says)


def wrong(about: str, says: str, todo: str) -> Finding:
    """It is not, and this helps."""
    return Finding(about, "wrong", says, todo)


def unknown(about: str, says: str, todo: str = "") -> Finding:
    """It is unknown, for this reason."""
    return Finding(about, "unknown", says, todo)


async def checked(about: str, check: Callable[..., Awaitable[list[Finding]]], *given: Any) -> list[Finding]:
    """What the check says, or that it could not run."""
    try:
        return await check(*given)
    except (BatonError, OSError, TimeoutError) as error:
        why = error.detail if isinstance(error, BatonError) else str(error) or type(error).__name__
        return [unknown(about, f"the check could not run: {why}")]
