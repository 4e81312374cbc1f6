"""`--since`: a time that a person gives as a duration ago (`90s`, `15m`, `2h`, `3d`) or as RFC 3339."""

from __future__ import annotations

import re
import time

import click

from shared.model.fragments import FragmentRejected, parse_rfc3339

_AGO = re.compile(r"(\d{1,9})([smhd])")
_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_since(_: click.Context, __: click.Parameter, since: str | None) -> int | None:
    """The time in ms since the epoch, for `callback=`. Raises BadParameter."""
    if since is None:
        return None
    if ago := _AGO.fullmatch(since):
        # more ago than 1970 means everything
        return max(0, time.time_ns() // 1_000_000 - int(ago[1]) * _MS[ago[2]])
    try:
        return parse_rfc3339(since)
    except FragmentRejected:
        raise click.BadParameter("use a duration like 90s, 15m, 2h, 3d or an RFC 3339 time") from None
