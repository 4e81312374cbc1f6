"""The archive with what executors need besides Spark and Python: the jobs' code and the packages it imports.

Spark sends it to every executor, which unpacks it into its working folder. It contains the distributions of
the packages that the executors' code imports, except those that come with Spark, and without the files that
no job uses (`UNUSED`). The executors' Python must have the same minor version and run on the same kind of
machine. `baton spark pack` writes an archive. Without one, a driver makes one for each state of code and
packages.
"""

from __future__ import annotations

import fnmatch
import hashlib
import importlib.metadata
import json
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from shared.errors import SparkUnavailable

EXECUTED: Final = (
    "services.control.spark.lake.job",
    "services.control.spark.reports.job",
    "services.control.spark.audit.job",
)
"""The modules whose functions run in executors."""
WITH_SPARK: Final = frozenset({"pyspark", "py4j"})
KEPT_S: Final = 30 * 86_400
"""How long unused archives stay: executors that start late still fetch the one that their driver uses."""
PROJECT: Final = Path(__file__).resolve().parents[4]
FOLDERS: Final = ("services", "shared")
UNUSED: Final = ("*/tests/*", "pyarrow/include/*", "pyarrow/*flight*", "pyarrow/*_s3*")
"""A quarter of what each executor would unpack: tests, headers, and what Arrow loads only when asked."""
_LIST = "import sys, json, importlib\nfor name in sys.argv[1:]: importlib.import_module(name)\n"
_LIST += "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))"


def write_pack(target: Path) -> int:
    """Writes the archive, which appears whole; returns its size. Raises SparkUnavailable, OSError."""
    distributions = _distributions()
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with zipfile.ZipFile(fresh, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for name, path in _files(distributions):
                archive.write(path, name)
        fresh.replace(target)
    finally:
        fresh.unlink(missing_ok=True)
    return target.stat().st_size


def ensure_pack(folder: Path) -> Path:
    """The archive of the current code and packages in this folder, written if it is missing.

    Removes archives that no driver has used for `KEPT_S`. Raises SparkUnavailable, OSError.
    """
    target = folder / f"baton-{_state()}.zip"
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        write_pack(target)
    os.utime(target)
    for pack in folder.glob("baton-*.zip"):
        if time.time() - pack.stat().st_mtime > KEPT_S:
            pack.unlink(missing_ok=True)
    return target


def _distributions() -> list[importlib.metadata.Distribution]:
    """The distributions of the packages that the code for executors imports."""
    environment = os.environ | {"PYTHONPATH": str(PROJECT)}
    listed = subprocess.run(
        [sys.executable, "-c", _LIST, *EXECUTED], env=environment, capture_output=True, check=False
    )
    if listed.returncode:
        why = listed.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise SparkUnavailable(f"the code for executors cannot be imported: {why}")
    imported = set(json.loads(listed.stdout)) - WITH_SPARK
    owners = importlib.metadata.packages_distributions()
    names = {owner for package in imported for owner in owners.get(package, ())}
    # the project itself is added from its files
    return [importlib.metadata.distribution(name) for name in sorted(names - {"baton"})]


def _files(distributions: Iterable[importlib.metadata.Distribution]) -> Iterator[tuple[str, Path]]:
    """Each file's name in the archive, and where it is."""
    for path in _project_files():
        yield path.relative_to(PROJECT).as_posix(), path
    for distribution in distributions:
        for file in distribution.files or ():
            path = Path(str(distribution.locate_file(file)))
            if (
                ".." not in file.parts
                and file.suffix != ".pyc"
                and path.is_file()
                and is_used(file.as_posix())
            ):
                yield file.as_posix(), path


def is_used(name: str) -> bool:
    """Whether executors get this file of a package.

    >>> [is_used(f"pyarrow/{name}") for name in ("libarrow.so", "_flight.so", "include/arrow/api.h")]
    [True, False, False]
    """
    return not any(fnmatch.fnmatchcase(name, pattern) for pattern in UNUSED)


def _project_files() -> list[Path]:
    return sorted(path for folder in FOLDERS for path in (PROJECT / folder).rglob("*.py"))


def _state() -> str:
    """A digest that changes with the code, the packages and the Python."""
    digest = hashlib.blake2b(f"{sys.version_info[:2]} {sys.platform}".encode(), digest_size=8)
    for path in _project_files():
        digest.update(path.relative_to(PROJECT).as_posix().encode() + path.read_bytes())
    installed = sorted(f"{one.name}=={one.version}" for one in importlib.metadata.distributions())
    digest.update("\n".join(installed).encode())
    return digest.hexdigest()
