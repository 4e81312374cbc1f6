"""Adds authentication, and the role that each route needs, to the OpenAPI document.

The roles are those by which the gate decides (needs.py). Used by ../openapi.py.
"""

from __future__ import annotations

from typing import Any, Final

from services.control.http.api.access.cookie import COOKIE
from services.control.http.api.access.needs import exceptions, needed_role

SCHEMES: Final[dict[str, dict[str, str]]] = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "For machines: a token of BATON_CONTROL_TOKENS_FILE. Without such a file, control "
        "serves only its own machine and asks for nothing.",
    },
    "login": {
        "type": "apiKey",
        "in": "cookie",
        "name": COOKIE,
        "description": "For browsers: what a login sets. Pages of other origins cannot act with it.",
    },
}


def document_roles(document: dict[str, Any]) -> None:
    """Adds the schemes, and to each route what it needs: as `security` for programs, in words for people."""
    document["components"]["securitySchemes"] = SCHEMES
    for path, routes in document["paths"].items():
        for method, route in routes.items():
            role = needed_role(method.upper(), path)
            route["security"] = [] if role is None else [{scheme: [role]} for scheme in SCHEMES]
            needs = [f"Needs the role `{role}`."] if role else ["Needs no role."]
            needs += [f"`{one}` needs `{other}`." for one, other in exceptions(method.upper(), path)]
            route["description"] = "\n\n".join(filter(None, (route.get("description"), " ".join(needs))))
