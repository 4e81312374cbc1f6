"""Which part of a log an audit judges."""

from __future__ import annotations

import pytest

from services.control.spark.audit.part import read_part
from shared.errors import InvalidInput

NOW = 1_700_000_000_000


def test_without_parameters_everything_is_judged() -> None:
    """All streams, all keys, all times."""
    part = read_part({}, 3, NOW)

    assert (part.streams, part.is_whole, part.words) == ((0, 1, 2), True, "everything")
    assert part.has_key(b"any")


def test_streams_are_numbers_and_ranges() -> None:
    """In any order, each once; all of them are no limit."""
    assert read_part({"streams": "7,0-2,1"}, 9, NOW).streams == (0, 1, 2, 7)
    assert read_part({"streams": "0-8"}, 9, NOW).is_every_stream


@pytest.mark.parametrize("streams", ["3", "1-3", "2-1"])
def test_streams_that_there_are_not_are_refused(streams: str) -> None:
    """The error says which there are."""
    with pytest.raises(InvalidInput, match=r"the streams are 0 … 2"):
        read_part({"streams": streams}, 3, NOW)


@pytest.mark.parametrize(
    ("since", "ms"),
    [
        ("90s", NOW - 90_000),
        ("2h", NOW - 7_200_000),
        ("7d", NOW - 604_800_000),
        ("2023-11-14T22:13:20Z", NOW),
    ],
)
def test_since_is_a_time_or_a_duration(since: str, ms: int) -> None:
    """Both are shown as a time in UTC."""
    part = read_part({"since": since}, 1, NOW)

    assert part.since == ms
    assert part.words.endswith("Z")


def test_a_time_that_is_not_one_is_refused() -> None:
    """The pattern of the parameter lets some through."""
    with pytest.raises(InvalidInput, match="2026-11-23T12:00:00Z"):
        read_part({"since": "2026-13-01T00:00:00Z"}, 1, NOW)


def test_a_sample_has_about_its_share_of_the_keys_and_always_the_same() -> None:
    """A larger sample has those of a smaller one."""
    keys = [f"visitor-{n}".encode() for n in range(10_000)]
    tenth, half = (read_part({"sample": share}, 1, NOW) for share in ("0.1", "0.5"))

    sampled = {key for key in keys if tenth.has_key(key)}

    assert 800 < len(sampled) < 1200
    assert sampled < {key for key in keys if half.has_key(key)}
