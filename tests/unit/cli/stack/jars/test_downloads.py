"""Downloading the jars: which are kept, replaced or rejected. The resolver is a tiny program."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.stack.faults import JarsUnavailable
from cli.stack.jars.downloads import fetch_jars, ivy_module, sha256_of, share_out
from cli.stack.jars.lock import Jar

_RESOLVE = """
import json, pathlib, sys
libs = pathlib.Path(sys.argv[1], "libs")
libs.mkdir()
for name, content in json.loads(sys.argv[2]).items():
    (libs / name).write_text(content)
"""


def jar(artifact: str, content: str = "", size_bytes: int = 10) -> Jar:
    sha256 = hashlib.sha256((content or artifact).encode()).hexdigest()
    return Jar(use="kafka", group="g", artifact=artifact, version="1", sha256=sha256, size_bytes=size_bytes)


class ProgramResolver:
    """A resolver that writes each jar's artifact as its content, unless `contents` has another (or None)."""

    def __init__(self, contents: dict[str, str | None] | None = None) -> None:
        self.contents = contents or {}
        self.requested: list[str] = []

    def __call__(self, jars: Sequence[Jar], folder: Path, messages: IO[bytes]) -> subprocess.Popen[bytes]:
        self.requested += [jar.artifact for jar in jars]
        files = {
            jar.file: content
            for jar in jars
            if (content := self.contents.get(jar.artifact, jar.artifact)) is not None
        }
        argv = [sys.executable, "-I", "-S", "-c", _RESOLVE, str(folder), json.dumps(files)]
        return subprocess.Popen(argv, stdout=messages, stderr=messages)


def fetch(folder: Path, jars: Sequence[Jar], resolver: ProgramResolver | None = None) -> list[Jar]:
    return fetch_jars("kafka", folder=folder, jars=jars, resolver=resolver or ProgramResolver(), quiet=True)


def test_every_jar_is_downloaded_once(tmp_path: Path) -> None:
    """A jar with the right checksum in the cache is not downloaded again."""
    jars, resolver = [jar("a"), jar("b")], ProgramResolver()

    first = fetch(tmp_path, jars, resolver)
    second = fetch(tmp_path, jars, resolver)

    assert (first, second) == (jars, [])
    assert sorted(resolver.requested) == ["a", "b"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a-1.jar", "b-1.jar"]


def test_only_a_damaged_jar_is_downloaded_again(tmp_path: Path) -> None:
    """Every fetch checks the checksums of all jars, not only those of new ones."""
    jars = [jar("a"), jar("b")]
    fetch(tmp_path, jars)
    (tmp_path / "b-1.jar").write_text("damaged")

    assert fetch(tmp_path, jars) == jars[1:]
    assert sha256_of(tmp_path / "b-1.jar") == jars[1].sha256


@pytest.mark.parametrize(("content", "fault"), [("forged", r"has sha256 \w+"), (None, "missing")])
def test_a_jar_that_is_missing_or_forged_is_named(tmp_path: Path, content: str | None, fault: str) -> None:
    """It never gets into the cache; the others do, and nothing else is left behind."""
    with pytest.raises(JarsUnavailable, match=rf"1 of 2 jars could not be downloaded: b-1\.jar \({fault}"):
        fetch(tmp_path, [jar("a"), jar("b")], ProgramResolver({"b": content}))

    assert [path.name for path in tmp_path.iterdir()] == ["a-1.jar"]


def test_jars_that_are_not_in_the_lock_file_are_deleted(tmp_path: Path) -> None:
    """Spark takes the whole folder as its class path."""
    (tmp_path / "old-1.jar").write_text("old")

    fetch(tmp_path, [jar("a")])

    assert [path.name for path in tmp_path.iterdir()] == ["a-1.jar"]


def test_concurrent_fetches_do_not_interfere(tmp_path: Path) -> None:
    """Each downloads to a folder of its own and moves complete jars into the cache."""
    jars = [jar(f"j{n}") for n in range(8)]

    def fetch_and_check(_: int) -> int:
        fetch(tmp_path, jars)
        return sum(sha256_of(tmp_path / one.file) == one.sha256 for one in jars)

    with ThreadPoolExecutor(3) as pool:
        sound = list(pool.map(fetch_and_check, range(3)))

    assert sound == [8, 8, 8]
    assert len(list(tmp_path.iterdir())) == 8


@given(st.lists(st.integers(0, 10_000_000), max_size=60), st.integers(1, 8))
def test_the_shares_contain_every_jar_once(sizes: list[int], shares: int) -> None:
    """No jar is missing or repeated, and no share is empty."""
    jars = [jar(f"j{n}", size_bytes=size) for n, size in enumerate(sizes)]

    lists = share_out(jars, shares)

    assert sorted(one.artifact for share in lists for one in share) == sorted(one.artifact for one in jars)
    assert len(lists) <= shares
    assert all(lists)


def test_ivy_does_not_download_dependencies() -> None:
    """The lock file alone decides which jars come."""
    module = ElementTree.fromstring(ivy_module([jar("a"), jar("b")], "share"))

    dependencies = [dict(element.attrib) for element in module.iter("dependency")]

    assert [one["name"] for one in dependencies] == ["a", "b"]
    assert {one["transitive"] for one in dependencies} == {"false"}
    assert {one["conf"] for one in dependencies} == {"default->default"}
