"""Lines of the services' logs: JSON with a time that is the same everywhere, and nothing for terminals."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

from shared.service.runtime import JsonLines


def test_a_line_has_its_time_in_utc_and_no_terminal_codes() -> None:
    """Logs of several machines can be merged; uvicorn adds a message with colours, which is left out."""
    record = logging.makeLogRecord(
        {"msg": "Started %d", "args": (7,), "created": 1_700_000_000.25, "msecs": 250.0, "stream": 3}
    )
    record.color_message = "Started \x1b[36m%d\x1b[0m"

    line = json.loads(JsonLines().format(record))

    assert line["at"] == "2023-11-14T22:13:20.250Z"
    assert datetime.fromisoformat(line["at"]).tzinfo == UTC
    assert line | {"at": 0, "level": "", "logger": ""} == {
        "at": 0,
        "level": "",
        "logger": "",
        "message": "Started 7",
        "stream": 3,
    }
