"""Which Java is used, and the error without a new enough one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.stack.faults import JavaMissing
from cli.stack.jars.java import find_java, parse_java_version


@pytest.fixture(autouse=True)
def _forget_java() -> Iterator[None]:
    find_java.cache_clear()
    yield
    find_java.cache_clear()


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program `java` in JAVA_HOME, without content."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.touch(0o755)
    return program


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "26-ea" 2026-03-17', 26),
        ("no java at all", None),
    ],
)
def test_the_version_is_the_feature_release(text: str, version: int | None) -> None:
    """Also without a minor release, and before a general release."""
    assert parse_java_version(text) == version


def test_a_new_enough_java_of_java_home_is_used(java: Path) -> None:
    """JAVA_HOME wins over the PATH."""
    java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")

    assert find_java() == str(java)


def test_an_old_java_is_rejected_with_its_version(java: Path) -> None:
    """The error says which version is needed and which was found."""
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")

    with pytest.raises(JavaMissing, match=r"Java 17 or newer, and .*/bin/java is version 11"):
        find_java()


def test_a_missing_java_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says where Java was searched."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(JavaMissing, match="there is none on the PATH"):
        find_java()
