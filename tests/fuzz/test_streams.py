"""Whatever bytes a client sends, its connection ends, and the server logs no errors."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter

import pytest

from tests.fuzz.streams import connect, stream_of
from tests.fuzz.test_fuzz import new_start
from tests.unit.producer.wire import Server

SEEDS = 1_500
STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) [A-Z]")


def test_mutated_streams_are_answered_or_ended(caplog: pytest.LogCaptureFixture) -> None:
    """No stream hangs, or causes an exception or a 5xx; some clients listen to the end, others disconnect."""
    start = new_start()

    with caplog.at_level(logging.INFO):
        statuses = asyncio.run(statuses_of(range(start, start + SEEDS)))

    print(sorted(statuses.items()))
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
    # 501 and 505 are answers to methods, codings and versions that are not spoken
    assert {status for status in statuses if status >= b"500"} <= {b"501", b"505"}
    assert {b"100", b"200", b"400", b"422", b"431"} <= statuses.keys()


async def statuses_of(seeds: range) -> Counter[bytes]:
    """How many answers of each status these seeds got."""
    statuses: Counter[bytes] = Counter()
    server = Server()
    for seed in seeds:
        try:
            answers = await connect(server, stream_of(seed), leaves=seed % 4 == 0)
        except Exception as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
        statuses.update(STATUS.findall(answers))
    return statuses
