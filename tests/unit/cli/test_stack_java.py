"""Which Java is used, and the error without a new enough one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.stack.faults import JavaMissing
from cli.stack.java import find_java, parse_java_version


@pytest.fixture(autouse=True)
def _forget_java() -> Iterator[None]:
    find_java.cache_clear()
    yield
    find_java.cache_clear()


def java_home(folder: Path, answer: str) -> str:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{answer}' >&2\n")
    program.chmod(0o755)
    return str(folder)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "26-ea" 2026-03-17', 26),
        ("no java at all", None),
    ],
)
def test_the_version_is_the_feature_release(text: str, version: int | None) -> None:
    """Before Java 9 the release is called 1.8, later 17 or 17.0.15."""
    assert parse_java_version(text) == version


def test_a_new_enough_java_of_java_home_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JAVA_HOME wins over the PATH."""
    monkeypatch.setenv("JAVA_HOME", java_home(tmp_path, 'openjdk version "17.0.1"'))

    assert find_java() == f"{tmp_path}/bin/java"


def test_an_old_java_is_rejected_with_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says which version is needed and which was found."""
    monkeypatch.setenv("JAVA_HOME", java_home(tmp_path, 'openjdk version "11.0.2"'))

    with pytest.raises(JavaMissing, match=r"Java 17 or newer, and .*/bin/java is version 11"):
        find_java()


def test_a_missing_java_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says where Java was searched."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(JavaMissing, match="there is none on the PATH"):
        find_java()
