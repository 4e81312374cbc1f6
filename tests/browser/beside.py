"""Lays the console's pictures beside those of a design, for a review: one picture for each view.

`make pictures-beside DESIGN=folder` writes build/console/beside. `VIEWS` says which of
the console's pictures belongs to the beginning of a file's name in the design.
"""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import Final

from agent.tests.chromium import Browser, browser, find_programs
from tests.browser.page import PICTURES

VIEWS: Final = {
    "1-": "overview-dark-1440",
    "2-": "overview-light-2560",
    "3-": "ownership-dark-1440",
    "4-": "large-dark-2560",
    "5-": "stream-light-1440",
    "6-": "movements-dark-1440",
    "7-": "sessions-light-1440",
    "8-": "jobs-light-1440",
    "9-": "follow-dark-1440",
}


def pairs_in(design: Path) -> list[tuple[Path, Path]]:
    """Each picture of the design with the console's own; those that have none are left out."""
    found = [
        (path, PICTURES / f"{name}.png")
        for prefix, name in VIEWS.items()
        for path in sorted(design.glob(f"{prefix}*.png"))
    ]
    return [pair for pair in found if pair[1].exists()]


def lay(one: Browser, design: Path, own: Path, target: Path) -> None:
    """Writes a picture of both, the design on the left."""
    images = "".join(f'<img src="data:image/png;base64,{_encoded(path)}">' for path in (design, own))
    style = "body { margin: 0; display: flex; gap: 16px; align-items: start; background: #808080 }"
    page = target.with_suffix(".html")
    page.write_text(f"<!doctype html><style>{style}</style>{images}")
    one.driver.get(page.as_uri())
    metrics = one.driver.execute_cdp_cmd("Page.getLayoutMetrics", {})["cssContentSize"]
    clip = {"x": 0, "y": 0, "width": metrics["width"], "height": metrics["height"], "scale": 1}
    shot = one.driver.execute_cdp_cmd("Page.captureScreenshot", {"clip": clip, "captureBeyondViewport": True})
    target.write_bytes(base64.b64decode(shot["data"]))
    page.unlink()


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def main(arguments: list[str]) -> int:
    """Lays all pairs."""
    programs = find_programs()
    pairs = pairs_in(Path(arguments[0]))
    if programs is None or not pairs:
        print("Chromium or the pictures are missing: run `make pictures` first", file=sys.stderr)
        return 1
    folder = PICTURES / "beside"
    folder.mkdir(exist_ok=True)
    with browser(programs) as one:
        for design, own in pairs:
            lay(one, design, own, folder / own.name)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
