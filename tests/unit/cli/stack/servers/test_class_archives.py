"""Archives of classes: made once for one Java and its jars, and nothing fails without one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cli.stack.servers import class_archives
from cli.stack.servers.class_archives import ensure_archive
from shared.class_archive import archive_of, from_archive


@pytest.fixture
def jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another environment, and the folder of its jars."""
    folder = tmp_path / "jars"
    folder.mkdir()
    monkeypatch.setattr("sys.prefix", str(tmp_path / "environment"))
    monkeypatch.setattr(class_archives, "jar_folder", lambda _: folder)
    return folder


def test_an_archive_is_made_once_and_again_for_new_jars(jars: Path) -> None:
    """A JVM starts from it as soon as it is there."""
    made, soon_s = [], jars.stat().st_ctime + 1

    def rehearse(archive: Path) -> None:
        made.append(from_archive("kafka"))
        archive.write_text(f"archive {len(made)}")
        os.utime(archive, (soon_s, soon_s))  # the file system's clock ticks only every few milliseconds

    before = from_archive("kafka")
    has_archive = [ensure_archive("kafka", rehearse), ensure_archive("kafka", rehearse)]
    first = archive_of("kafka").read_text()
    (jars / "new.jar").touch()
    before_s = jars.stat().st_ctime - 0.001
    os.utime(archive_of("kafka"), (before_s, before_s))
    has_archive.append(ensure_archive("kafka", rehearse))

    assert has_archive == [True] * 3
    assert before == ()
    # Java would use the one that is there, and write none
    assert made == [(), ()]
    assert (first, archive_of("kafka").read_text()) == ("archive 1", "archive 2")
    assert f"-XX:SharedArchiveFile={archive_of('kafka')}" in from_archive("kafka")


@pytest.mark.usefixtures("jars")
def test_a_java_that_archives_nothing_starts_without() -> None:
    """Also where the environment cannot be written."""
    assert not ensure_archive("spark", lambda _: None)
    assert from_archive("spark") == ()

    archive_of("spark").parent.rmdir()
    archive_of("spark").parent.touch()
    assert not ensure_archive("spark", lambda archive: archive.touch())
    assert from_archive("spark") == ()
