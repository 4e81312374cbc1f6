"""Tokens, the cookies made from them, and how often an address may show a wrong one."""

from __future__ import annotations

import hmac
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.control.http.api.access.attempts import AT_ONCE, MAX_ADDRESSES, Attempts
from services.control.http.api.access.caller import ROLES, Caller
from services.control.http.api.access.cookie import LASTS_S, cookie_for, token_of
from services.control.http.api.access.tokens import MIN_TOKEN_BYTES, Token, Tokens, parse_token
from shared.errors import InvalidInput
from shared.service.key_file import find_key
from shared.service.rate_limit import RateLimited

LETTERS = string.ascii_letters + string.digits
SECRETS = st.text(LETTERS + "-_.~+/=", min_size=MIN_TOKEN_BYTES, max_size=256)
NAMES = st.builds(str.__add__, st.sampled_from(LETTERS), st.text(f"{LETTERS}._-", max_size=63))
TOKENS = st.builds(
    lambda secret, name, role: Token(secret=secret.encode(), caller=Caller(name=name, role=role)),
    SECRETS,
    NAMES,
    st.sampled_from(ROLES),
).filter(lambda token: token.secret.decode() not in token.caller.name)
TIMES_S = st.floats(0, 4e9)
ANN = parse_token("0123456789abcdef operate name=ann", 1)


@given(TOKENS, st.integers(1, 1000))
def test_a_line_is_a_token_with_its_role_and_its_name(token: Token, number: int) -> None:
    """Whatever token, name and role; its `repr` has the last two alone."""
    line = f"{token.secret.decode()}  {token.caller.role}\tname={token.caller.name}"

    assert parse_token(line, number) == token
    assert token.secret.decode() not in repr(token)


@pytest.mark.parametrize(
    "rest",
    [
        *("", "view", "name=ann", "name=ann view", "owner name=ann", "view+admin name=ann", "VIEW name=ann"),
        *("view name=", "view name=a/b", "view ann", "view name=ann admin", "view name=ann rate=5"),
    ],
)
def test_a_line_without_a_role_and_a_name_is_refused(rest: str) -> None:
    """Who did something must always be known, and no role is a default."""
    with pytest.raises(InvalidInput, match="token 7 must be followed") as caught:
        parse_token(f"0123456789abcdef {rest}", 7)

    assert "0123456789" not in caught.value.detail


@pytest.mark.parametrize(
    "secret", ["0123456789abcde", "sch\u00fcssel-0123456789", "0123456789,abcdef", "x" * 257]
)
def test_a_token_can_be_sent_and_not_be_guessed(secret: str) -> None:
    """It has 16 to 256 visible ASCII characters; the error names its line and not its text."""
    with pytest.raises(InvalidInput, match="token 7") as caught:
        parse_token(f"{secret} view name=ann", 7)

    assert secret not in caught.value.detail


async def test_tokens_are_changed_without_a_restart(tmp_path: Path) -> None:
    """Old and new are both in force while the file has both, also under one name."""
    file, tokens = tmp_path / "tokens", Tokens(tmp_path / "tokens")
    new = b"fedcba9876543210"
    found = []
    for text in (
        "0123456789abcdef operate name=ann\n",
        "# both\n0123456789abcdef operate name=ann\r\n\nfedcba9876543210 operate name=ann",
        "fedcba9876543210 view name=ann",
    ):
        file.write_text(text)
        await tokens.file.step()
        found.append([token and token.caller.role for token in (tokens.find(ANN.secret), tokens.find(new))])

    assert found == [["operate", None], ["operate", "operate"], [None, "view"]]


@pytest.mark.parametrize(
    "content", [None, b"", b"# none", b"short view name=ann", b"\xff\xfe", b"#" * 1_100_000]
)
async def test_a_broken_file_keeps_the_last_good_tokens(
    content: bytes | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """So emptying the file opens nothing and locks nobody out; the log says why, once."""
    file, tokens = tmp_path / "tokens", Tokens(tmp_path / "tokens")
    file.write_text("0123456789abcdef operate name=ann")
    await tokens.file.step()
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    await tokens.file.step()
    await tokens.file.step()

    assert tokens.find(ANN.secret) == ANN
    assert (len(tokens.file.remarks()), tokens.file.complaint()) == (1, "")
    assert [record.message for record in caplog.records] == ["keys not loaded"]
    shown = (repr(tokens), *tokens.file.remarks(), *(str(vars(record)) for record in caplog.records))
    assert "0123456789" not in "".join(shown)


@pytest.mark.parametrize("shown", [b"first-0123456789", b"third-0123456789", b"none", b""])
def test_a_token_is_compared_with_all_of_them_at_full_length(
    shown: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the time tells neither which one it resembles, nor how far, nor how long they are."""
    compared: list[tuple[int, int]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return one == other

    known = [
        Token(secret=b"%b-0123456789" % name, caller=Caller(name="ann", role="view"))
        for name in (b"first", b"second-of-another-length", b"third")
    ]
    monkeypatch.setattr(hmac, "compare_digest", compare)

    find_key(shown, known)

    assert compared == [(32, 32)] * len(known)


@given(TOKENS, TIMES_S, st.floats(0, LASTS_S - 1))
def test_a_cookie_is_good_until_it_expires(token: Token, now_s: float, age_s: float) -> None:
    """For the token that it was made for, and in no other process than one that knows the token."""
    cookie = cookie_for(token, now_s)

    assert token_of(cookie, lambda name: [token] if name == token.caller.name else [], now_s + age_s) == token
    assert token_of(cookie, lambda name: [token], now_s + LASTS_S) is None
    assert token_of(cookie, lambda name: [], now_s) is None


@given(TOKENS, SECRETS)
def test_a_cookie_ends_with_its_token(token: Token, other: str) -> None:
    """Another token of the same name does not make it good: rotation ends it, and nobody can forge one."""
    renewed = Token(secret=other.encode(), caller=token.caller)
    cookie = cookie_for(token, 0)

    assert (token_of(cookie, lambda name: [renewed], 0) is None) == (renewed.secret != token.secret)
    assert token.secret.decode() not in cookie


def test_a_cookie_has_the_role_that_its_token_has_now() -> None:
    """A role that is taken away in the file is gone at once."""
    lowered = Token(secret=ANN.secret, caller=Caller(name="ann", role="view"))

    assert token_of(cookie_for(ANN, 0), lambda name: [lowered], 0) == lowered


@given(st.data())
def test_a_changed_cookie_is_worth_nothing(data: st.DataObject) -> None:
    """Neither its end nor its name can be changed, nor can it be anything else."""
    cookie = cookie_for(ANN, 0)
    place = data.draw(st.integers(0, len(cookie) - 1))
    changed = cookie[:place] + data.draw(st.characters(codec="ascii")) + cookie[place + 1 :]

    def named(name: str) -> list[Token]:
        return [ANN] if name == "ann" else []

    assert (token_of(changed, named, 0) == ANN) == (changed == cookie)
    assert token_of(data.draw(st.text()), named, 0) is None


def test_wrong_tokens_are_limited_by_address() -> None:
    """Ten at once, then one a second; other addresses have their own. An IPv6 machine has a whole /64."""
    now_s = 0.0
    attempts = Attempts(lambda: now_s)
    for _ in range(AT_ONCE):
        attempts.limit_of("2001:db8::1").admit()
        attempts.limit_of("::ffff:192.0.2.9").admit()

    with pytest.raises(RateLimited) as refused:
        attempts.limit_of("2001:db8::2").admit()
    with pytest.raises(RateLimited):
        attempts.limit_of("192.0.2.9").admit()
    for address in ("2001:db8:0:1::1", "192.0.2.7", "::ffff:192.0.2.8"):
        attempts.limit_of(address).admit()
    now_s = 1.0
    attempts.limit_of("2001:db8::1").admit()

    assert refused.value.retry_after_s == 1


def test_only_so_many_addresses_are_remembered() -> None:
    """The one that was heard of least recently is forgotten: memory is bounded, whoever asks."""
    attempts = Attempts(lambda: 0.0)
    first, busy = attempts.limit_of("first"), attempts.limit_of("busy")
    for number in range(MAX_ADDRESSES - 1):
        attempts.limit_of(f"other {number}")
        attempts.limit_of("busy")

    assert attempts.limit_of("busy") is busy
    assert attempts.limit_of("first") is not first
