"""Files of secrets: one or two lines, read again when they change; the last good ones stay in force."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.consumer.settings import ConsumerSettings
from shared.errors import InvalidInput, SettingsInvalid
from shared.secret_file import SecretFile
from shared.service.settings import load


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a b\n", ("a b",)),
        ("\N{ZERO WIDTH NO-BREAK SPACE} n\u00fc \r\n\r\nold".encode(), ("n\u00fc", "old")),
        (b"\n", None),
        (b"1\n2\n3", None),
        (b"\xff", None),
        (b"x" * 20_000, None),
        (None, None),
    ],
    ids=["one", "two", "none", "three", "binary", "large", "missing"],
)
def test_a_file_has_one_secret_or_two(
    tmp_path: Path, content: bytes | None, expected: tuple[str, ...] | None
) -> None:
    """Blank lines and blanks around a secret do not count; anything else is a fault of the setting."""
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    file = SecretFile(str(path), "BATON_X_FILE")

    if expected is not None:
        assert (file.read(), file.faults()) == (expected, [])
    else:
        with pytest.raises(InvalidInput, match=f"BATON_X_FILE={path}: "):
            file.read()
        assert len(file.faults()) == 1


def test_a_changed_file_counts_and_an_unusable_one_does_not(tmp_path: Path) -> None:
    """A process goes on with what it has while a file is replaced by halves."""
    path = tmp_path / "secret"
    path.write_text("old")
    file = SecretFile(str(path), "BATON_X_FILE")
    found = [file.read()]
    for content in ("new\nold", "", "new"):
        path.write_text(content)
        found.append(file.read())
    path.unlink()
    found.append(file.read())

    assert found == [("old",), ("new", "old"), ("new", "old"), ("new",), ("new",)]
    assert "new" not in repr(file)


def test_a_user_of_zookeeper_needs_a_usable_password_file(tmp_path: Path) -> None:
    """A service does not start with half of the settings, or with a file that it cannot use."""
    good = tmp_path / "good"
    good.write_text("secret")

    def faults(user: str, file: str) -> list[str]:
        try:
            load(ConsumerSettings, {"BATON_ZOOKEEPER_USER": user, "BATON_ZOOKEEPER_PASSWORD_FILE": file})
        except SettingsInvalid as error:
            return error.faults
        return []

    assert faults("", "") == faults("baton", str(good)) == []
    both = "BATON_ZOOKEEPER_USER and BATON_ZOOKEEPER_PASSWORD_FILE: set both, or neither"
    assert (faults("baton", ""), faults("", str(good))) == ([both], [both])
    assert faults("ba:ton", str(good)) == ["BATON_ZOOKEEPER_USER: a name with `:` would end there"]
    missing = f"BATON_ZOOKEEPER_PASSWORD_FILE={tmp_path / 'none'}: No such file or directory"
    assert faults("baton", str(tmp_path / "none")) == [missing]


def test_the_secret_of_requests_may_be_in_a_file(tmp_path: Path) -> None:
    """The first line signs and the second is accepted; short ones, and both ways at once, are faults."""
    path = tmp_path / "secret"

    def settings(content: str, **more: str) -> ConsumerSettings | list[str]:
        path.write_text(content)
        try:
            return load(ConsumerSettings, {"BATON_SECRET_FILE": str(path)} | more)
        except SettingsInvalid as error:
            return error.faults

    signing = "a" * 16
    for accepted in ("", "b" * 16, "zookeeper"):
        loaded = settings(f"{signing}\n{accepted}\n")
        assert isinstance(loaded, ConsumerSettings)
        assert loaded.secrets == (signing, accepted)
        assert signing not in repr(loaded)
    short = "has less than 16 bytes: it can be guessed"
    assert settings("zookeeper\nshort") == [
        f"BATON_SECRET_FILE: the first line {short}",
        f"BATON_SECRET_FILE: the second line {short}",
    ]
    assert settings(signing, BATON_SECRET="b" * 16) == [
        "BATON_SECRET_FILE has the secrets: unset BATON_SECRET and BATON_ACCEPTED_SECRET"
    ]
