"""Where the tables of a lake are.

Pure. A lake is a folder or the URL of an object store. Each namespace has its own folder: the tables of `ns`
are under `<lake>/ns`. Without a namespace they are directly under the lake.
"""

from __future__ import annotations

from typing import Final

from shared.errors import InvalidInput

TABLES: Final = frozenset({"sessions", "unreadable", "reports"})
"""Folders of the tables without a namespace. In another Baton's table, VACUUM would delete a namespace's."""


class NamespaceTaken(InvalidInput):
    """A table of the lake has the namespace's name."""


def table_path(lake: str, namespace: str, *name: str) -> str:
    """The folder or URL of a table. Raises NamespaceTaken.

    >>> table_path("s3a://bucket/lake/", "shop", "reports", "periods")
    's3a://bucket/lake/shop/reports/periods'
    """
    if namespace in TABLES:
        raise NamespaceTaken(
            f"the namespace {namespace!r} can have no lake: a Baton without a namespace keeps its tables "
            "in a folder of that name, and cleans it up"
        )
    return "/".join((lake.rstrip("/"), *filter(None, [namespace]), *name))
