"""Fetching the jars: what is kept, what comes anew, what is refused; the resolver is a tiny program."""

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
from cli.stack.jars import fetch_jars, ivy_module, sha256_of, share_out
from cli.stack.lock import Jar

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
    """A resolver that writes each jar's artifact as its content, unless told of another (or none)."""

    def __init__(self, contents: dict[str, str | None] | None = None) -> None:
        self.contents = contents or {}
        self.asked: list[str] = []

    def __call__(self, jars: Sequence[Jar], folder: Path, messages: IO[bytes]) -> subprocess.Popen[bytes]:
        self.asked += [jar.artifact for jar in jars]
        files = {
            jar.file: content
            for jar in jars
            if (content := self.contents.get(jar.artifact, jar.artifact)) is not None
        }
        argv = [sys.executable, "-I", "-S", "-c", _RESOLVE, str(folder), json.dumps(files)]
        return subprocess.Popen(argv, stdout=messages, stderr=messages)


def test_every_jar_comes_and_the_second_time_asks_for_none(tmp_path: Path) -> None:
    """What is in the cache with the right sum is not fetched again."""
    jars, resolver = [jar("a"), jar("b")], ProgramResolver()

    first = fetch_jars("kafka", folder=tmp_path, jars=jars, resolver=resolver, quiet=True)
    second = fetch_jars("kafka", folder=tmp_path, jars=jars, resolver=resolver, quiet=True)

    assert (first.kept, len(first.fetched)) == (0, 2)
    assert (second.kept, second.fetched) == (2, [])
    assert sorted(resolver.asked) == ["a", "b"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a-1.jar", "b-1.jar"]


def test_a_damaged_jar_is_fetched_again_and_only_that(tmp_path: Path) -> None:
    """The sum of every jar is checked each time, not only when it is fetched."""
    jars = [jar("a"), jar("b")]
    fetch_jars("kafka", folder=tmp_path, jars=jars, resolver=ProgramResolver(), quiet=True)
    (tmp_path / "b-1.jar").write_text("damaged")
    resolver = ProgramResolver()

    fetch_jars("kafka", folder=tmp_path, jars=jars, resolver=resolver, quiet=True)

    assert resolver.asked == ["b"]
    assert sha256_of(tmp_path / "b-1.jar") == jars[1].sha256


def test_a_jar_with_another_sum_is_refused(tmp_path: Path) -> None:
    """What comes with a sum that the lock file does not have never gets into the cache."""
    with pytest.raises(JarsUnavailable, match=r"1 of 2 jars .* b-1\.jar \(came with sha256 "):
        fetch_jars(
            "kafka",
            folder=tmp_path,
            jars=[jar("a"), jar("b")],
            resolver=ProgramResolver({"b": "forged"}),
            quiet=True,
        )

    assert [path.name for path in tmp_path.iterdir()] == ["a-1.jar"]


def test_a_missing_jar_is_named_in_one_sentence(tmp_path: Path) -> None:
    """A failed download says how many are missing and which, and leaves nothing half-done."""
    with pytest.raises(JarsUnavailable) as caught:
        fetch_jars(
            "kafka", folder=tmp_path, jars=[jar("a")], resolver=ProgramResolver({"a": None}), quiet=True
        )

    assert "1 of 1 jars could not be fetched: a-1.jar (missing)" in caught.value.detail
    assert "\n" not in caught.value.detail
    assert list(tmp_path.iterdir()) == []


def test_jars_that_the_lock_file_no_longer_names_go(tmp_path: Path) -> None:
    """The folder holds exactly the jars of the lock file, so that all of it may be a class path."""
    (tmp_path / "old-1.jar").write_text("old")

    fetch_jars("kafka", folder=tmp_path, jars=[jar("a")], resolver=ProgramResolver(), quiet=True)

    assert [path.name for path in tmp_path.iterdir()] == ["a-1.jar"]


def test_several_fetches_at_once_do_each_other_no_harm(tmp_path: Path) -> None:
    """Each works in a folder of its own and moves in what is whole."""
    jars = [jar(f"j{n}") for n in range(8)]

    def fetch(_: int) -> int:
        fetch_jars("kafka", folder=tmp_path, jars=jars, resolver=ProgramResolver(), quiet=True)
        return sum(sha256_of(tmp_path / one.file) == one.sha256 for one in jars)

    with ThreadPoolExecutor(3) as pool:
        sound = list(pool.map(fetch, range(3)))

    assert sound == [8, 8, 8]
    assert len(list(tmp_path.iterdir())) == 8


@given(st.lists(st.integers(0, 10_000_000), max_size=60), st.integers(1, 8))
def test_the_shares_hold_every_jar_once(sizes: list[int], shares: int) -> None:
    """No jar is lost or fetched twice, and no resolver is started for nothing."""
    jars = [jar(f"j{n}", size_bytes=size) for n, size in enumerate(sizes)]

    lists = share_out(jars, shares)

    assert sorted(one.artifact for share in lists for one in share) == sorted(one.artifact for one in jars)
    assert len(lists) <= shares
    assert all(lists)


def test_ivy_is_asked_for_the_jars_alone() -> None:
    """Nothing that a jar depends on comes along: the lock file alone decides."""
    module = ElementTree.fromstring(ivy_module([jar("a"), jar("b")], "share"))

    dependencies = [dict(element.attrib) for element in module.iter("dependency")]

    assert [one["name"] for one in dependencies] == ["a", "b"]
    assert {one["transitive"] for one in dependencies} == {"false"}
    assert {one["conf"] for one in dependencies} == {"default->default"}
