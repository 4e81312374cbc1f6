"""The archive for executors: what is in it, and which archives are kept."""

from __future__ import annotations

import os
import time
import zipfile
from pathlib import Path

from services.control.spark.session.pack import KEPT_S, ensure_pack


def test_the_archive_holds_what_executors_import_and_nothing_of_sparks(tmp_path: Path) -> None:
    """It is made once for each state of the code; those that nobody has used for long are removed."""
    forgotten, recent = tmp_path / "baton-forgotten.zip", tmp_path / "baton-recent.zip"
    for pack, age_s in ((forgotten, KEPT_S + 60), (recent, KEPT_S - 60)):
        pack.touch()
        os.utime(pack, (time.time() - age_s,) * 2)

    pack = ensure_pack(tmp_path)
    inode = pack.stat().st_ino

    assert (ensure_pack(tmp_path), pack.stat().st_ino) == (pack, inode)
    assert sorted(tmp_path.iterdir()) == sorted([pack, recent])
    names = set(zipfile.ZipFile(pack).namelist())
    assert {"services/control/spark/audit/job.py", "shared/model/group.py"} <= names
    packages = {name.split("/")[0] for name in names}
    assert {"msgspec", "pyarrow"} <= packages
    assert packages.isdisjoint({"pyspark", "py4j", "tests", "cli", "pytest", "uvicorn"})
