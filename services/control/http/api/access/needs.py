"""The role that each request needs. Pure: decides from its method and path alone.

Used by gate.py and documented.py.

Reading needs `view`, and `ACTS` lists what acts. A request that acts but is not listed needs `admin`, and a
test fails until its route is listed.
"""

from __future__ import annotations

import re

from services.control.http.api.access.caller import Role

OPEN = frozenset({"/livez", "/readyz", "/login", "/logout"})
"""Paths that need no role: probes have no token, and a login is where a caller shows one."""
FILES = "/console/assets/"
"""The folder of styles, scripts and fonts. They need no role: the login page loads its style from there."""
ACTS: tuple[tuple[str, str, Role], ...] = (
    ("POST", "/operations", "operate"),
    ("DELETE", "/operations/{operation_id}", "operate"),
    # what the group knew of its position is gone for good
    ("DELETE", "/groups/{group}", "admin"),
    # it deletes files of the lake, and with them the tables' older versions
    ("POST", "/jobs/maintain/runs", "admin"),
    ("POST", "/jobs/{name}/runs", "operate"),
    ("DELETE", "/runs/{run_id}", "operate"),
    # it drops items that nobody has worked on
    ("POST", "/queues/{queue}/purge", "admin"),
    ("POST", "/queues/{queue}/redrive", "operate"),
    # the same by the console's forms
    ("POST", "/console/operations", "operate"),
    ("POST", "/console/operations/{operation_id}/cancel", "operate"),
    ("POST", "/console/jobs/maintain/runs", "admin"),
    ("POST", "/console/jobs/{name}/runs", "operate"),
    ("POST", "/console/runs/{run_id}/cancel", "operate"),
    ("POST", "/console/queues/{queue}/purge", "admin"),
    ("POST", "/console/queues/{queue}/redrive", "operate"),
)
"""What acts: method, path, role. The first match counts; `{…}` stands for any text without `/`."""
_READING = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})


def needed_role(method: str, path: str) -> Role | None:
    """The least role that may make this request; None if it needs none.

    >>> needed_role("GET", "/streams"), needed_role("POST", "/operations"), needed_role("GET", "/livez")
    ('view', 'operate', None)
    >>> [needed_role("POST", f"/jobs/{job}/runs") for job in ("lake", "maintain")]
    ['operate', 'admin']
    """
    if path in OPEN or (method in _READING and path.startswith(FILES)):
        return None
    if method in _READING:
        return "view"
    return next((role for act, form, role in _FORMS if act == method and form.fullmatch(path)), "admin")


def acts(method: str, path: str) -> bool:
    """Whether the request may change something."""
    return path not in OPEN and method not in _READING


def exceptions(method: str, path: str) -> list[tuple[str, Role]]:
    """Paths that a route's path covers but that need another role, with that role.

    >>> exceptions("POST", "/jobs/{name}/runs"), exceptions("DELETE", "/runs/{run_id}")
    ([('/jobs/maintain/runs', 'admin')], [])
    """
    covered, usual = _form_of(path), needed_role(method, path)
    of_method = [(line, role) for act, line, role in ACTS if act == method]
    return [(line, role) for line, role in of_method if role != usual and covered.fullmatch(line)]


def _form_of(path: str) -> re.Pattern[str]:
    return re.compile("[^/]+".join(map(re.escape, re.split(r"\{\w+\}", path))))


_FORMS = tuple((method, _form_of(path), role) for method, path, role in ACTS)
