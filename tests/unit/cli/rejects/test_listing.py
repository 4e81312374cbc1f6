"""What `baton rejected` shows."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from cli.kafka.rejects import StoredReject
from cli.main import cli
from cli.rejects.identity import OpenRejects
from cli.rejects.listing import SHOWN_BYTES, Listing
from cli.terminal.escaping import escaped
from cli.terminal.output import cell_text
from tests.fakes.rejects import reject_of


def stored(offset: int, reason: str, value: bytes = b"{}", detail: str = "why") -> StoredReject:
    reject = reject_of(value, reason=reason, detail=detail, index=2)
    return StoredReject(partition=0, offset=offset, time_ms=1_000 + offset, reject=reject)


def test_rejects_are_counted_by_reason_and_the_newest_are_shown() -> None:
    """The most frequent reason comes first; all rejects are counted, `limit` are shown by their beginning."""
    listing = Listing(OpenRejects(), limit=3)

    listing.add([stored(0, "time"), stored(1, "key", b"x" * 40_000)])
    listing.add([stored(5, "time", b"12345"), stored(6, "time")])

    assert listing.total == 4
    assert listing.by_reason() == [
        {"reason": "time", "count": 3, "cut": 0, "bytes": 9, "first": 1_000, "last": 1_006},
        {"reason": "key", "count": 1, "cut": 1, "bytes": 40_000, "first": 1_001, "last": 1_001},
    ]
    cut, row, newest = listing.rows()
    assert (cut["offset"], cut["cut"], cut["beginning"]) == (1, True, "x" * SHOWN_BYTES)
    assert newest["offset"] == 6
    assert row == {
        "id": "0/5",
        "partition": 0,
        "offset": 5,
        "time": 1_005,
        "reason": "time",
        "detail": "why",
        "size": 5,
        "index": 2,
        "cut": False,
        "beginning": "12345",
    }


def test_a_reason_limits_the_listing() -> None:
    """Rejects with other reasons are neither counted nor shown."""
    listing = Listing(OpenRejects(), limit=9, reason="key")

    listing.add([stored(0, "time"), stored(1, "key")])

    assert (listing.total, [row["reason"] for row in listing.rows()]) == (1, ["key"])


@pytest.mark.parametrize(
    "nasty", [b"\x1b[2J", "\u202e".encode(), "\u200b".encode(), b"\r\n", b"\x00", b"\xff", "\x9b1m".encode()]
)
def test_text_from_clients_cannot_control_the_terminal(nasty: bytes) -> None:
    """Control sequences, overrides, invisible and invalid characters are escaped; JSON has the text."""
    listing = Listing(OpenRejects(), limit=1)

    listing.add([stored(0, "time", b"a" + nasty + b"z", detail=nasty.decode(errors="replace"))])

    (shown,) = listing.rows()
    assert (shown["beginning"] + cell_text(shown["detail"])).isprintable()
    assert shown["detail"] == nasty.decode(errors="replace")
    assert shown["beginning"].startswith("a\\")
    assert escaped(b"\\x1b") == "\\\\x1b"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--reason", "Not A Word"],
        ["--since", "yesterday"],
        ["--namespace", "a/b"],
        ["replay"],
        ["--reason", "time", "replay", "--reason", "time"],
        ["show", "7"],
        ["dismiss"],
        ["dismiss", "0/7", "--reason", "time"],
        ["dismiss", "0/7x"],
    ],
)
def test_invalid_options_are_rejected(arguments: list[str]) -> None:
    """With exit code 2 and a usage message, before Kafka is contacted."""
    result = CliRunner().invoke(cli, ["rejected", *arguments])

    assert result.exit_code == 2
    assert "Error" in result.output
