"""How a demo guesses the format, key and time of a log, and which logs it rejects."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.demo.log import DemoLog, generated_log, real_log
from cli.importing.parsing.formats import Format
from cli.importing.parsing.rows import Fields
from cli.visits.generator import generate
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
    log = guessed(tmp_path, text)

    assert (log.form, log.fields, log.item_path) == (form, fields, item_path)


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
    with pytest.raises(InvalidInput, match=sentence):
        guessed(tmp_path, text)


def test_a_missing_log_is_rejected(tmp_path: Path) -> None:
    """The error names the file."""
    with pytest.raises(BatonError, match=r"there is no file .*nowhere\.log"):
        real_log(tmp_path / "nowhere.log", None, None, None, None, None)


def test_a_generated_log_is_written_as_its_sessions_say(tmp_path: Path) -> None:
    """The demo compares what is delivered with these sessions; the seed determines both."""
    log = generated_log(tmp_path, 20, 1)

    assert log.visits == generate(20, 1)
    assert log.lines == len(log.path.read_bytes().splitlines())


def guessed(folder: Path, text: bytes) -> DemoLog:
    """What a demo makes of a log with this text."""
    path = folder / "given.log"
    path.write_bytes(text)
    return real_log(path, None, None, None, None, None)
