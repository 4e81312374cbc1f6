"""Finds and opens the Delta tables of a lake, without Spark: the only file that knows how to reach them.

A table is a folder with a Delta log, right under the lake (or its namespace) or in one of `GROUPS_OF_TABLES`.
Folders whose names begin with `_` or `.` are not tables. Used by control, and by `baton sql` in its own
process.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.fs as pa_fs
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler

from services.control.core.lake.paths import table_path
from services.control.core.lake.tables import ColumnRow
from shared.errors import NotFound, Unavailable

GROUPS_OF_TABLES = ("reports",)
"""Folders of several tables: `reports/periods`. Other folders belong to namespaces."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}(/[A-Za-z0-9][A-Za-z0-9_-]{0,99})?")
_LOG = "_delta_log"
_TYPES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint"}


class UnknownTable(NotFound):
    """There is no table of that name."""


class LakeUnavailable(Unavailable):
    """The lake cannot be read."""


def storage_options() -> dict[str, str]:
    """How object stores are reached: nothing but what their clients find in the environment (`AWS_…`)."""
    return {}


class Lake:
    """The tables of a namespace under a folder or URL. Its methods block: call them in a thread.

    They raise NamespaceTaken if the namespace can have no lake.
    """

    def __init__(self, lake: str, namespace: str) -> None:
        self._lake = lake
        self._namespace = namespace

    def __repr__(self) -> str:
        return f"<Lake of namespace {self._namespace!r} in {self._lake}>"

    @property
    def root(self) -> str:
        """The folder or URL of its tables."""
        return table_path(self._lake, self._namespace)

    def names(self) -> list[str]:
        """The tables' names, sorted; none if there is no lake yet. Raises LakeUnavailable."""
        found = []
        for name in self._folders(""):
            if self._is_table(name):
                found.append(name)
            elif name in GROUPS_OF_TABLES:
                inner = (f"{name}/{one}" for one in self._folders(name))
                found += [one for one in inner if self._is_table(one)]
        return sorted(found)

    def open(self, name: str) -> DeltaTable:
        """The table as it is now. Raises UnknownTable, LakeUnavailable."""
        # before anything is joined to a path: a name with `..` would leave the lake
        if not _NAME.fullmatch(name):
            raise UnknownTable(f"there is no table {name!r}")
        try:
            return DeltaTable(f"{self.root}/{name}", storage_options=storage_options())
        except TableNotFoundError:
            raise UnknownTable(f"there is no table {name!r}") from None
        except (DeltaError, OSError) as error:
            raise LakeUnavailable(f"table {name} cannot be opened", cause=str(error)) from None

    def _is_table(self, name: str) -> bool:
        return _NAME.fullmatch(name) is not None and _LOG in self._folders(name, hidden=True)

    def _folders(self, within: str, *, hidden: bool = False) -> list[str]:
        path = f"{self.root}/{within}".rstrip("/")
        try:
            files = pa_fs.PyFileSystem(DeltaStorageHandler(path, storage_options()))
            found = files.get_file_info(pa_fs.FileSelector("", recursive=False, allow_not_found=True))
        except TableNotFoundError:
            return []
        except (DeltaError, OSError) as error:
            raise LakeUnavailable("the lake cannot be listed", cause=str(error)) from None
        names = (info.path.strip("/") for info in found if info.type == pa_fs.FileType.Directory)
        return [name for name in names if hidden or not name.startswith(("_", "."))]


@contextlib.contextmanager
def reading(name: str) -> Iterator[None]:
    """Raises LakeUnavailable for whatever the libraries say about the table in the block."""
    try:
        yield
    except (DeltaError, OSError, ValueError, pa.ArrowException) as error:
        raise LakeUnavailable(f"table {name} cannot be read", cause=str(error)) from None


def rows_of(table: DeltaTable, name: str, statement: str) -> list[dict[str, Any]]:
    """The rows of a statement of SQL over the table, which it calls `name`. Raises LakeUnavailable."""
    with reading(name):
        stream = QueryBuilder().register(name, table).execute(statement)
        rows: list[dict[str, Any]] = pa.RecordBatchReader.from_stream(stream).read_all().to_pylist()
    return rows


def quoted(value: str) -> str:
    """A text in SQL.

    >>> quoted("o'neil")
    "'o''neil'"
    """
    return "'" + value.replace("'", "''") + "'"


def columns_of(table: DeltaTable) -> list[ColumnRow]:
    """The table's columns, with their types as Spark's SQL names them."""
    fields = table.schema().fields
    return [ColumnRow(name=one.name, type=type_text(one.type.to_json())) for one in fields]


def type_text(described: str) -> str:
    """A type's JSON in Delta's log, as Spark's SQL names it.

    >>> type_text('"long"'), type_text('{"type":"array","elementType":"string","containsNull":true}')
    ('bigint', 'array<string>')
    """
    return _type_text(json.loads(described))


def _type_text(kind: Any) -> str:
    if isinstance(kind, str):
        return _TYPES.get(kind, kind)
    assert isinstance(kind, Mapping)
    if kind["type"] == "array":
        return f"array<{_type_text(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{_type_text(kind['keyType'])},{_type_text(kind['valueType'])}>"
    inner = ",".join(f"{field['name']}:{_type_text(field['type'])}" for field in kind["fields"])
    return f"struct<{inner}>"
