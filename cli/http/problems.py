"""Turns a problem document (RFC 9457) into one sentence for a person.

Pure. `cli/http/requests.py` puts the sentence into the error that it raises.
"""

from __future__ import annotations

from typing import Any

import msgspec

from cli.terminal.escaping import printable


def sentence_of(content: bytes) -> str | None:
    """The sentence of a problem document, with all its faults, printable; None for anything else.

    >>> sentence_of(b'{"detail": "has faults", "errors": [{"in": "top", "detail": "must be 1"}]}')
    'has faults (top: must be 1)'
    >>> sentence_of(b"<html>")
    """
    try:
        problem = msgspec.json.decode(content, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return None
    detail = problem.get("detail") or problem.get("title")
    if not detail:
        return None
    # several faults at once, each with the field that it is about
    faults = [
        f"{fault.get('in')}: {fault.get('detail')}" if fault.get("in") else str(fault.get("detail"))
        for fault in problem.get("errors") or []
        if isinstance(fault, dict)
    ]
    return printable(f"{detail} ({'; '.join(faults)})" if faults else str(detail))
