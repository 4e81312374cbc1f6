"""Write keys: which are in force, what a request gives, and a file that changes or breaks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from services.producer.http import keys as subject
from services.producer.http.keys import (
    Headers,
    KeysUnread,
    MissingKey,
    WriteKeys,
    WrongKey,
    given_key,
    parse_keys,
)
from shared.errors import BatonError, InvalidInput

BEARER = [(b"authorization", b"Bearer k1")]


def verdict(keys: WriteKeys, key: str | None) -> type[BatonError] | None:
    """The error that a request with this key meets."""
    headers = [] if key is None else [(b"x-write-key", key.encode())]
    try:
        keys.check(headers, b"")
    except BatonError as error:
        return type(error)
    return None


@pytest.mark.parametrize(
    ("headers", "query", "key"),
    [
        ([], b"", None),
        (BEARER, b"", b"k1"),
        ([(b"authorization", b"bearer  k1 ")], b"", b"k1"),
        ([(b"x-write-key", b"k2")], b"", b"k2"),
        ([], b"write_key=k3", b"k3"),
        ([], b"v=1&write_key=k%2F3&write_key=other", b"k/3"),
        ([], b"write_key=a+b", b"a+b"),
        ([], b"my_write_key=k3", None),
        ([], b"write_key=", b""),
        ([(b"authorization", b"Basic eDp5")], b"write_key=k3", b"k3"),
        ([(b"x-write-key", b"k2"), *BEARER], b"write_key=k3", b"k1"),
        ([(b"x-write-key", b"k2")], b"write_key=k3", b"k2"),
    ],
)
def test_a_key_is_looked_for_in_three_places(headers: Headers, query: bytes, key: bytes | None) -> None:
    """The bearer's counts before the header's, and that before the query's."""
    assert given_key(headers, query) == key


def test_without_keys_everybody_may_write() -> None:
    """Neither keys nor a file: nothing is asked for, and what is given is not looked at."""
    assert verdict(WriteKeys(), None) is None
    assert verdict(WriteKeys(), "anything") is None


@pytest.mark.parametrize(
    ("key", "error"),
    [("k1", None), ("k2", None), (None, MissingKey), ("", MissingKey), ("k", WrongKey), ("K1", WrongKey)],
)
def test_each_of_the_keys_in_force_opens(key: str | None, error: type[BatonError] | None) -> None:
    """Several at once; no other one, however alike, and none at all is told apart from a wrong one."""
    assert verdict(WriteKeys([b"k1", b"k2"]), key) is error


@pytest.mark.parametrize("word", ["two words", "with,comma", "schlüssel", "tab\tinside", "x" * 257])
def test_what_no_header_could_carry_is_no_key(word: str) -> None:
    """Refused by its number, because the key itself must not be told."""
    with pytest.raises(InvalidInput, match="number 2 is no write key") as caught:
        parse_keys(["fine", word])

    assert word not in caught.value.detail


async def test_keys_are_changed_without_a_restart(tmp_path: Path) -> None:
    """The file's next content is in force at the next look, beside the keys of the setting."""
    file = tmp_path / "keys"
    file.write_text("# ours\nold\n")
    keys = WriteKeys([b"own"], file)
    await keys.step()
    before = [verdict(keys, key) for key in ("own", "old", "new")]

    file.write_text("old\r\n\n  new  \n")
    await keys.step()
    both = [verdict(keys, key) for key in ("own", "old", "new")]
    file.write_text("new")
    await keys.step()
    after = [verdict(keys, key) for key in ("own", "old", "new")]

    assert before == [None, None, WrongKey]
    assert both == [None, None, None]
    assert after == [None, WrongKey, None]


async def test_the_file_is_followed_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`run()` looks again and again; nobody has to ask."""
    monkeypatch.setattr(subject, "REREAD_S", 0.001)
    file = tmp_path / "keys"
    file.write_text("old")
    keys = WriteKeys([], file)
    await keys.step()
    running = asyncio.create_task(keys.run())

    file.write_text("new")
    deadline = time.monotonic() + 10
    while verdict(keys, "new") is not None:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.001)
    running.cancel()

    assert verdict(keys, "old") is WrongKey


def remove(file: Path) -> None:
    """It is gone."""
    file.unlink()


def make_folder(file: Path) -> None:
    """A folder stands where it was."""
    file.unlink()
    file.mkdir()


BREAKS: dict[str, tuple[Callable[[Path], object], str]] = {
    "removed": (remove, "No such file"),
    "a folder": (make_folder, "directory"),
    "emptied": (lambda file: file.write_bytes(b""), "no key"),
    "only comments": (lambda file: file.write_text("# none\n\n"), "no key"),
    "a bad key": (lambda file: file.write_text("new\ntwo words"), "number 2"),
    "no text": (lambda file: file.write_bytes(b"\xff\xfe"), "no text"),
    "huge": (lambda file: file.write_bytes(b"k\n" * 600_000), "more than"),
}


@pytest.mark.parametrize("name", BREAKS)
async def test_a_file_of_no_use_leaves_the_last_good_keys_in_force(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told once, in the log and by `remarks()`, and forgotten when the file is good again."""
    caplog.set_level("INFO")
    break_it, said = BREAKS[name]
    file = tmp_path / "keys"
    file.write_text("good")
    keys = WriteKeys([], file)
    await keys.step()

    break_it(file)
    await keys.step()
    await keys.step()
    verdicts = [verdict(keys, key) for key in ("good", "new")]
    remarks, complaint = keys.remarks(), keys.complaint()
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    if file.is_dir():
        file.rmdir()
    file.write_text("good")
    await keys.step()

    assert verdicts == [None, WrongKey]
    assert [said in remark for remark in remarks] == [True]
    assert complaint == ""
    assert len(warnings) == 1
    assert keys.remarks() == []


async def test_before_the_file_was_ever_read_a_key_may_be_right(tmp_path: Path) -> None:
    """503, to be tried again: after a 403 clients throw their fragments away. Not ready either."""
    keys = WriteKeys([b"own"], tmp_path / "keys")
    await keys.step()

    verdicts = [verdict(keys, key) for key in ("own", "other", None)]
    complaint = keys.complaint()
    (tmp_path / "keys").write_text("other")
    await keys.step()

    assert verdicts == [None, KeysUnread, MissingKey]
    assert "No such file" in complaint
    assert (verdict(keys, "other"), keys.complaint()) == (None, "")


async def test_no_key_is_ever_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Neither in the log, nor in an error, nor in a `repr`, whatever is wrong with it."""
    caplog.set_level("DEBUG")
    file = tmp_path / "keys"
    file.write_text("hidden-1")
    keys = WriteKeys([b"hidden-2"], file)
    await keys.step()
    file.write_text("hidden-3 hidden-4")
    await keys.step()

    with pytest.raises(WrongKey) as caught:
        keys.check([(b"x-write-key", b"hidden-5")], b"")

    told = [*(str(vars(record)) for record in caplog.records), repr(keys), *keys.remarks(), str(caught.value)]
    assert len(caplog.records) >= 2
    assert "hidden" not in "".join(told)
