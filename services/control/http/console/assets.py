"""The console's files: its styles and scripts, and those of others (`assets/vendor`).

A file's URL holds a digest of its content, so browsers keep it for ever and still see each change at once.
"""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path
from typing import Final, NamedTuple

from fastapi import APIRouter, Request, Response

from shared.errors import NotFound

FOLDER: Final = Path(__file__).parent / "assets"
PREFIX: Final = "/console/assets"
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
_PACKED: Final = frozenset({".css", ".js", ".svg"})


class Asset(NamedTuple):
    """One file: its content as it is, and as gzip if that is smaller."""

    media_type: str
    plain: bytes
    packed: bytes | None


class Assets:
    """All files, by the last part of their URLs."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._names: dict[str, str] = {}
        self._assets: dict[str, Asset] = {}
        for path in sorted(folder.rglob("*")):
            if path.suffix in _TYPES:
                self._add(path)
        self._link()

    def __repr__(self) -> str:
        return f"<Assets: {len(self._assets)} files>"

    def url(self, name: str) -> str:
        """The path of a file, from the root of the console."""
        return f"{PREFIX}/{self._names[name]}"

    def asset(self, hashed: str) -> Asset:
        """The file of that URL. Raises NotFound."""
        if hashed not in self._assets:
            raise NotFound(f"there is no file {hashed!r}")
        return self._assets[hashed]

    def _add(self, path: Path) -> None:
        content = path.read_bytes()
        hashed = f"{path.stem}.{hashlib.sha256(content).hexdigest()[:12]}{path.suffix}"
        packed = gzip.compress(content, 9, mtime=0) if path.suffix in _PACKED else None
        self._names[path.name] = hashed
        self._assets[hashed] = Asset(_TYPES[path.suffix], content, packed)

    def _link(self) -> None:
        """Puts the fonts' hashed names into the styles that load them."""
        style = self._assets.pop(self._names["console.css"])
        text = style.plain.decode()
        for name in ("geist.woff2", "geist-mono.woff2"):
            text = text.replace(f"vendor/{name}", self._names[name])
        content = text.encode()
        hashed = f"console.{hashlib.sha256(content).hexdigest()[:12]}.css"
        self._names["console.css"] = hashed
        self._assets[hashed] = Asset(style.media_type, content, gzip.compress(content, 9, mtime=0))


def assets_routes(assets: Assets) -> APIRouter:
    """The route of the files."""
    routes = APIRouter(include_in_schema=False)

    @routes.get(PREFIX + "/{hashed}")
    async def asset(hashed: str, request: Request) -> Response:
        found = assets.asset(hashed)
        headers = {"Cache-Control": "public, max-age=31536000, immutable", "Vary": "Accept-Encoding"}
        if found.packed is not None and "gzip" in request.headers.get("accept-encoding", ""):
            headers["Content-Encoding"] = "gzip"
            return Response(found.packed, media_type=found.media_type, headers=headers)
        return Response(found.plain, media_type=found.media_type, headers=headers)

    return routes
