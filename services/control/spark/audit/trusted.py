"""Lists what an audit takes on trust, so that its verdict does not claim more than it has proven.

Pure. `left_out` names what this run could not judge. This names what no run judges, and what of the lake
this one does not compare (docs/reliability.md has all of it in one table).
"""

from __future__ import annotations

from typing import Final

from services.control.spark.lake.sums import Sums

ALWAYS: Final = {
    "the log": "a fragment that Kafka has acknowledged and lost does not show in it",
    "the heads": "what is not delivered counts as missing or overdue only as far as they say that owners are",
    "`epoch`": "which owner delivered a session does not follow from the log",
    "`closed_at`": "silence may end a session before a record does, so only its bounds are judged",
}
OLDER: Final = "rows that the sessions topic no longer has"
REPORTS: Final = "the reports"


def trusted(*, is_whole: bool, has_table: bool, sums: Sums | None, has_reports: bool) -> list[dict[str, str]]:
    """What is trusted and why. `sums`: of the rows that the lake has written; None if it noted none.

    >>> [one["what"] for one in trusted(is_whole=True, has_table=True, sums=Sums(), has_reports=False)]
    ['the log', 'the heads', '`epoch`', '`closed_at`']
    """
    found = dict(ALWAYS)
    if has_table and not is_whole:
        found[OLDER] = "only an audit of everything compares them with the lake's checksums"
        found[REPORTS] = "only an audit of everything compares them with the sessions"
    elif has_table and sums is None:
        found[OLDER] = "the lake has noted no checksums of them yet"
    elif sums is not None and sums.since:
        found[OLDER] = (
            f"of those before {sums.since} the lake has noted no checksums; `baton run lake -p recount=1` "
            "does so, and takes them as they are"
        )
    if has_reports:
        found[REPORTS] = "only their sums are judged: not percentiles, lists of items, retention"
    return [{"what": what, "why": why} for what, why in found.items()]
