"""Where the tables of a lake are.

Pure. A lake is a folder or the URL of an object store. Each namespace has its own folder: the tables of `ns`
are under `<lake>/ns`. Without a namespace they are directly under the lake.
"""

from __future__ import annotations


def table_path(lake: str, namespace: str, *name: str) -> str:
    """The folder or URL of a table.

    >>> table_path("s3a://bucket/lake/", "shop", "reports", "periods")
    's3a://bucket/lake/shop/reports/periods'
    """
    return "/".join((lake.rstrip("/"), *filter(None, [namespace]), *name))
