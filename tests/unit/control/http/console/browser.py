"""Control's pages as a browser gets them, without a browser: their text, links and forms."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

import httpx
from fastapi import FastAPI

ORIGIN = {"origin": "http://control"}


@dataclass
class Page(HTMLParser):
    """A page: its status, what it says, and the attributes of its elements by tag."""

    status: int
    html: str
    elements: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    _texts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.html)

    @property
    def text(self) -> str:
        """Everything that it says, with single spaces."""
        return " ".join(" ".join(self._texts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.setdefault(tag, []).append({name: value or "" for name, value in attrs})

    def handle_data(self, data: str) -> None:
        self._texts.append(data)

    def values(self, tag: str, attribute: str) -> list[str]:
        """The attribute of all elements of the tag that have it."""
        return [one[attribute] for one in self.elements.get(tag, []) if attribute in one]

    def form(self, action: str) -> dict[str, str] | None:
        """The names and values of the hidden fields of a page that posts there; None if none does."""
        if action not in self.values("form", "action"):
            return None
        hidden = [one for one in self.elements["input"] if one.get("type") == "hidden"]
        return {one["name"]: one["value"] for one in hidden}


def browser_of(app: FastAPI) -> httpx.AsyncClient:
    """A client that sends what a browser sends from control's own pages."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://control", headers=ORIGIN)


async def page_at(http: httpx.AsyncClient, path: str) -> Page:
    """The page."""
    answer = await http.get(path)
    return Page(answer.status_code, answer.text)


async def posted(http: httpx.AsyncClient, path: str, **fields: str) -> tuple[str, Page]:
    """Where a form leads ("" if nowhere), and the page that answers it."""
    answer = await http.post(path, data=fields)
    return answer.headers.get("location", ""), Page(answer.status_code, answer.text)
