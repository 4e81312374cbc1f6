"""Copies the pictures of docs/console.md from build/console, with 256 colours each: a third of the bytes."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

from PIL import Image

from tests.browser.page import PICTURES

DOCS: Final = Path(__file__).parents[2] / "docs"


def shown() -> list[str]:
    """The names of the pictures that docs/console.md shows."""
    return re.findall(r"\(console/([\w-]+)\.png\)", (DOCS / "console.md").read_text())


def main() -> int:
    """Keeps all of them; fails if a test has not taken one."""
    for name in shown():
        with Image.open(PICTURES / f"{name}.png") as picture:
            packed = picture.convert("RGB").quantize(256, dither=Image.Dither.NONE)
            packed.save(DOCS / "console" / f"{name}.png", optimize=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
