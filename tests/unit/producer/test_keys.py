"""Write keys: which are in force, where a request carries one, and a file that changes or breaks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from services.producer.http.access.grants import Scope, WrongScope
from services.producer.http.access.keys import (
    Headers,
    KeysUnread,
    MissingKey,
    WriteKeys,
    WrongKey,
    given_key,
    parse_keys,
)
from shared.errors import BatonError, InvalidInput
from shared.service.rate_limit import RateLimit, RateLimited

BEARER = [(b"authorization", b"Bearer k1")]


def verdict(keys: WriteKeys, key: str | None, scope: Scope = Scope.WRITE) -> type[BatonError] | None:
    """The error for a request with this key; None if it may write."""
    headers = [] if key is None else [(b"x-write-key", key.encode())]
    try:
        keys.check(headers, b"", scope)
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
def test_a_key_may_be_in_three_places(headers: Headers, query: bytes, key: bytes | None) -> None:
    """`Authorization: Bearer` wins over `X-Write-Key`, and that over the query."""
    assert given_key(headers, query) == key


def test_without_keys_anybody_may_write() -> None:
    """With neither keys nor a file no key is required, and a key in the request is ignored."""
    assert verdict(WriteKeys(), None) is None
    assert verdict(WriteKeys(), "anything") is None


@pytest.mark.parametrize(
    ("key", "error"),
    [("k1", None), ("k2", None), (None, MissingKey), ("", MissingKey), ("k", WrongKey), ("K1", WrongKey)],
)
def test_each_key_in_force_admits(key: str | None, error: type[BatonError] | None) -> None:
    """Several are in force at once; a similar key does not match; a missing key is not a wrong one."""
    assert verdict(WriteKeys(parse_keys(["k1", "k2"])), key) is error


@pytest.mark.parametrize(
    ("line", "write", "mark"),
    [
        ("k1", None, WrongScope),
        ("k1 write", None, WrongScope),
        ("k1 mark", WrongScope, None),
        ("k1 write+mark", None, None),
        ("k1 name=importer mark+write", None, None),
    ],
)
def test_a_key_allows_what_it_says_and_a_bare_one_only_fragments(
    line: str, write: type[BatonError] | None, mark: type[BatonError] | None
) -> None:
    """A key in a page is public, and markers end everybody's sessions: a line must allow them explicitly."""
    keys = WriteKeys(parse_keys([line]))

    assert (verdict(keys, "k1", Scope.WRITE), verdict(keys, "k1", Scope.MARK)) == (write, mark)


def test_a_rate_admits_so_many_fragments_per_second() -> None:
    """A request that empties the bucket is admitted, and those that follow wait until it has filled up."""
    now_s = 0.0
    limit = RateLimit("the write key", 10, now_s=lambda: now_s)
    limit.admit()
    limit.take(24)

    with pytest.raises(RateLimited) as refused:
        limit.admit()
    now_s = 1.5
    with pytest.raises(RateLimited):
        limit.admit()
    now_s = 1.6
    limit.admit()
    now_s = 100.0
    for _ in range(10):
        limit.admit()

    assert refused.value.retry_after_s == 2
    with pytest.raises(RateLimited):
        limit.admit()


async def test_a_key_keeps_what_is_left_of_its_rate_when_the_file_changes(tmp_path: Path) -> None:
    """A key whose line is the same goes on, one whose rate changed begins anew."""
    file = tmp_path / "keys"
    file.write_text("k1 rate=1\nk2 rate=1\n")
    keys = WriteKeys((), file)
    await keys.step()
    first = [verdict(keys, key) for key in ("k1", "k2", "k1", "k2")]
    file.write_text("k1 rate=1\nk2 rate=8 name=shop\nk3 rate=1 name=shop\n")
    await keys.step()

    assert first == [None, None, RateLimited, RateLimited]
    assert [verdict(keys, key) for key in ("k1", "k2")] == [RateLimited, None]
    assert keys.use.rates == {"unnamed": 1.0, "shop": 9.0}


WRONG_WORDS = ["key rate=0", "key rate=1.5", "key name=", "key name=a/b", "key admin", "key write+admin"]


@pytest.mark.parametrize(
    "word", [*WRONG_WORDS, "two words", "with,comma", "schlüssel", "tab\tinside", "x" * 257]
)
def test_a_word_that_no_header_can_carry_is_not_a_key(word: str) -> None:
    """The error names its number, because it must not reveal the key itself."""
    with pytest.raises(InvalidInput, match="write key 2 ") as caught:
        parse_keys(["fine", word])

    assert word not in caught.value.detail


async def test_keys_are_changed_without_a_restart(tmp_path: Path) -> None:
    """New content of the file is in force after the next read, together with the keys of the setting."""
    file = tmp_path / "keys"
    file.write_text("# ours\nold\n")
    keys = WriteKeys(parse_keys(["own"]), file)
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


def replace_with_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


BREAKS: dict[str, tuple[Callable[[Path], object], str]] = {
    "removed": (Path.unlink, "No such file"),
    "a folder": (replace_with_folder, "directory"),
    "emptied": (lambda file: file.write_bytes(b""), "no key"),
    "only comments": (lambda file: file.write_text("# none\n\n"), "no key"),
    "a bad key": (lambda file: file.write_text("new\ntwo words"), "write key 2"),
    "not text": (lambda file: file.write_bytes(b"\xff\xfe"), "not UTF-8"),
    "huge": (lambda file: file.write_bytes(b"k\n" * 600_000), "more than"),
}


@pytest.mark.parametrize("name", BREAKS)
async def test_an_unusable_file_leaves_the_last_good_keys_in_force(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged once, and `remarks()` reports it until the file is good again."""
    caplog.set_level("INFO")
    break_it, reason = BREAKS[name]
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
    assert [reason in remark for remark in remarks] == [True]
    assert complaint == ""
    assert len(warnings) == 1
    assert keys.remarks() == []


async def test_until_the_file_is_read_an_unknown_key_may_be_valid(tmp_path: Path) -> None:
    """KeysUnread (503), so that clients retry: after a 403 they drop their fragments. And not ready."""
    keys = WriteKeys(parse_keys(["own"]), tmp_path / "keys")
    await keys.step()

    verdicts = [verdict(keys, key) for key in ("own", "other", None)]
    complaint = keys.complaint()
    (tmp_path / "keys").write_text("other")
    await keys.step()

    assert verdicts == [None, KeysUnread, MissingKey]
    assert "No such file" in complaint
    assert (verdict(keys, "other"), keys.complaint()) == (None, "")


async def test_no_key_is_ever_revealed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Not in the log, in an error, or in a `repr`, whatever is wrong with it."""
    caplog.set_level("DEBUG")
    file = tmp_path / "keys"
    file.write_text("hidden-1")
    keys = WriteKeys(parse_keys(["hidden-2"]), file)
    await keys.step()
    file.write_text("hidden-3 hidden-4")
    await keys.step()

    with pytest.raises(WrongKey) as caught:
        keys.check([(b"x-write-key", b"hidden-5")], b"")

    output = [
        *(str(vars(record)) for record in caplog.records),
        repr(keys),
        *keys.remarks(),
        str(caught.value),
    ]
    assert len(caplog.records) >= 2
    assert "hidden" not in "".join(output)
