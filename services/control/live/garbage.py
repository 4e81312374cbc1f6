"""Keeps garbage collections short: during one, no request is answered (docs/adr/0026)."""

from __future__ import annotations

import gc


def keep_collections_short() -> None:
    """Takes what was imported and wired out of all collections: it stays until the process ends."""
    gc.collect()
    gc.freeze()
