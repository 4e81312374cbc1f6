"""Keeps garbage collections short, because no request is answered during one (docs/adr/0026)."""

from __future__ import annotations

import gc


def keep_collections_short() -> None:
    """Excludes from all collections what was imported and wired: it lives as long as the process."""
    gc.collect()
    gc.freeze()
