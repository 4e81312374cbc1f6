"""The lock file of jars: its content, its errors, and the folder of the jars."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli.stack.faults import LockMalformed
from cli.stack.jars.lock import USES, cache_folder, jar_folder, parse_lock, read_lock

HEADER = "use\tgroup\tartifact\tversion\tsha256\tbytes"
SUM = "ab" * 32


def test_a_line_becomes_a_jar_and_comments_are_skipped() -> None:
    """Each line has a jar's use, group, artifact, version, checksum and size."""
    text = f"# a comment\n{HEADER}\nkafka\torg.yaml\tsnakeyaml\t2.5\t{SUM}\t340015\n\n"

    (jar,) = parse_lock(text)

    assert (jar.use, jar.group, jar.file) == ("kafka", "org.yaml", "snakeyaml-2.5.jar")
    assert (jar.sha256, jar.size_bytes) == (SUM, 340015)


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        (f"kafka\torg.yaml\tsnakeyaml\t2.5\t{SUM}", "5 columns"),
        (f"flink\torg.yaml\tsnakeyaml\t2.5\t{SUM}\t1", "'flink'"),
        (f"kafka\torg.yaml\t../evil\t2.5\t{SUM}\t1", "artifact"),
        ("kafka\torg.yaml\tsnakeyaml\t2.5\tabc\t1", "sha256"),
        (f"kafka\torg.yaml\tsnakeyaml\t2.5\t{SUM}\tmany", "bytes"),
    ],
)
def test_a_malformed_line_is_named(row: str, complaint: str) -> None:
    """The error has the number of the line and its fault."""
    with pytest.raises(LockMalformed, match=f"line 2 .*{complaint}"):
        parse_lock(f"{HEADER}\n{row}\n")


def test_a_file_without_column_names_is_rejected() -> None:
    """They must be on the first line that is not a comment."""
    with pytest.raises(LockMalformed, match="must begin with the columns"):
        parse_lock("# nothing else\n")


def test_the_lock_file_of_the_project_has_jars_for_both_uses() -> None:
    """Kafka has its class path, Spark its additions, and no file name occurs twice in one use."""
    names = [[jar.file for jar in read_lock(use)] for use in USES]

    assert list(map(len, names)) == [len(set(files)) for files in names] == [46, 6]


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"HOME": "/h"}, "/h/.cache/baton"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "/x"}, "/x/baton"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "/x", "BATON_CACHE": "/b"}, "/b"),
    ],
)
def test_the_environment_determines_the_cache_folder(environment: dict[str, str], folder: str) -> None:
    """BATON_CACHE wins over XDG_CACHE_HOME, which wins over `.cache` in the home folder."""
    assert cache_folder(environment) == Path(folder)
    assert jar_folder("spark", environment) == Path(folder, "jars", "spark")
