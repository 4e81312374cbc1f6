"""How a demo guesses the format, key and time of a log, and which logs it rejects."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from cli.demo.log import DemoLog, generated_log, real_log
from cli.importing.formats import Fields, Format
from shared.errors import BatonError, InvalidInput

ACCESS = b'h1 - - [01/Aug/1995:00:00:01 -0400] "GET /a HTTP/1.0" 200 1839\n'


@pytest.mark.parametrize(
    ("text", "form", "fields", "item_path"),
    [
        (b"host\ttime\turl\na\t807256800\t/x\n", "tsv", Fields(key="host", time="time"), "$.data.url"),
        (b"user,ts\na,807256800\n", "csv", Fields(key="user", time="ts"), "$.data.path"),
        (b"host,time,end\na,807256800,1\n", "csv", Fields(key="host", time="time", end="end"), "$.data.path"),
        (
            b'{"key": "a", "time": 807256800, "path": "/"}\n',
            "ndjson",
            Fields(key="key", time="time", end="end"),
            "$.data.path",
        ),
        (ACCESS, "access-log", Fields(key="host", time="time"), "$.data.path"),
    ],
)
def test_the_format_and_the_fields_are_guessed_from_the_first_lines(
    tmp_path: Path, text: bytes, form: Format, fields: Fields, item_path: str
) -> None:
    """Format, key, time, end and the field to report come from the header or the first line."""
    path = tmp_path / "given.log"
    path.write_bytes(text)

    log = guessed(path)

    assert (log.form, log.fields, log.item_path) == (form, fields, item_path)


def test_a_gzipped_log_is_unpacked(tmp_path: Path) -> None:
    """Gzip is recognised by its first bytes, not by the file's name; blank lines do not count."""
    path = tmp_path / "log"
    path.write_bytes(gzip.compress(b"host\ttime\n\na\t1\nb\t2\n"))

    log = guessed(path)

    assert (log.form, log.lines) == ("tsv", 3)


def test_options_override_guesses(tmp_path: Path) -> None:
    """Each option replaces one guess."""
    path = tmp_path / "given.tsv"
    path.write_bytes(b"host\ttime\tagent\tseen\na\t1\tb\t2\n")

    log = real_log(path, "tsv", "agent", "seen", None, "$.data.host")

    assert (log.fields, log.item_path) == (Fields(key="agent", time="seen"), "$.data.host")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b"", "has no lines"),
        (b"host\ttime\n", "no lines except a header"),
        (b"colour\tsize\na\t1\n", "give --key and --time"),
        (b"host\ttime\na\tnoon\n", "cannot be read as tsv"),
        (b"a letter to a friend\n", "cannot be read as access-log"),
        (b"{not json\n", "give --key and --time"),
    ],
)
def test_a_log_of_an_unknown_format_is_rejected(tmp_path: Path, text: bytes, sentence: str) -> None:
    """The error names the options to set, before anything starts."""
    path = tmp_path / "given.log"
    path.write_bytes(text)

    with pytest.raises(InvalidInput, match=sentence):
        guessed(path)


def test_a_missing_log_is_rejected(tmp_path: Path) -> None:
    """The error names the file."""
    with pytest.raises(BatonError, match=r"there is no file .*nowhere\.log"):
        guessed(tmp_path / "nowhere.log")


def test_a_generated_log_is_reproducible(tmp_path: Path) -> None:
    """Visitors and seed determine every byte; another seed gives another log."""
    (tmp_path / "again").mkdir()
    first = generated_log(tmp_path, 20, 1)
    before = first.path.read_bytes()

    again = generated_log(tmp_path / "again", 20, 1)
    other = generated_log(tmp_path, 20, 2)

    assert again.path.read_bytes() == before != other.path.read_bytes()
    assert first.lines == len(before.splitlines())


def guessed(path: Path) -> DemoLog:
    return real_log(path, None, None, None, None, None)
