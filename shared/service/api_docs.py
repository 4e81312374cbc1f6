"""Serves `/docs`, the page that explains a service's HTTP API, without anything from the internet.

FastAPI's own page loads Swagger UI from a public server, and stays blank without it. Here its files are part
of the service (`swagger/`), packed: a browser gets them as they are, other clients unpacked. Used by the
`app.py` of every service, which creates its app with `NO_DOCS`.
"""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from fastapi.openapi.docs import get_swagger_ui_html

NO_DOCS: Final[dict[str, Any]] = {"docs_url": None, "redoc_url": None}
"""Arguments of `FastAPI` that leave out its own pages."""
FOLDER = Path(__file__).parent / "swagger"
ASSETS = {
    "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
    "swagger-ui.css": "text/css; charset=utf-8",
}
MAX_AGE_S = 3600
_NO_ICON = "data:,"


def install_docs(app: FastAPI) -> None:
    """Adds `/docs` and the files that it loads. Their URLs are relative, so a proxy may add a prefix."""

    @app.get("/docs", include_in_schema=False)
    async def docs() -> Response:
        return get_swagger_ui_html(
            openapi_url="openapi.json",
            title=app.title,
            swagger_js_url="docs/swagger-ui-bundle.js",
            swagger_css_url="docs/swagger-ui.css",
            swagger_favicon_url=_NO_ICON,
        )

    for name, media_type in ASSETS.items():
        app.add_api_route(f"/docs/{name}", _answer_with(name, media_type), include_in_schema=False)


def _answer_with(name: str, media_type: str) -> Any:
    packed = (FOLDER / f"{name}.gz").read_bytes()
    tag = f'W/"{hashlib.sha256(packed).hexdigest()[:32]}"'  # weak: packed and plain bytes differ
    headers = {"Cache-Control": f"public, max-age={MAX_AGE_S}", "ETag": tag, "Vary": "Accept-Encoding"}

    async def asset(request: Request) -> Response:
        if tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            packed_headers = headers | {"Content-Encoding": "gzip"}
            return Response(packed, media_type=media_type, headers=packed_headers)
        return Response(gzip.decompress(packed), media_type=media_type, headers=headers)

    return asset
