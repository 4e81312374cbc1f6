"""What an operation would do, as its page says it before anybody confirms. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from services.control.core.operations.forecasts import Forecast, StreamMove
from services.control.core.operations.wishes import Wish
from services.control.http.console.shown.scene import Scene
from services.control.http.console.words import plural, size, span
from shared.model.names import DEFAULT_GROUP


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A member's streams before and after: how many stay, come and go."""

    member: str
    stay: int
    come: int
    go: int

    @property
    def words(self) -> str:
        """The change in words."""
        before, after = self.stay + self.go, self.stay + self.come
        if before == after and not self.go:
            return f"{plural(before, 'stream')}, as before"
        return f"{plural(before, 'stream')} to {after or 'none'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """The first step's page. `parts` pairs each piece of the sentence with whether it is stressed."""

    title: str
    verb: str
    parts: Sequence[tuple[str, bool]]
    warning: str
    shares: Sequence[Share]
    pause: str
    longest: str
    length: str
    calls: Calls


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """The same act for other clients: as a request, and on the command line."""

    curl: str
    baton: str


def dry_run(found: Forecast, scene: Scene) -> DryRun:
    """The page for this forecast."""
    return DryRun(
        title=title_of(found),
        verb=title_of(found),
        parts=_sentence(found, scene),
        warning=_warning(found, scene),
        shares=shares_of(scene, found.moves),
        pause=span(found.likely.pause_ms),
        longest=span(found.likely.longest_pause_ms),
        length=span(found.likely.length_ms),
        calls=calls_for(found),
    )


def title_of(wish: Wish) -> str:
    """The act in words, as its button names it."""
    match wish.kind:
        case "move":
            return f"Move stream {wish.stream} to {wish.to}"
        case "drain":
            return f"Drain {wish.member}"
        case "rebalance":
            return "Remove all pins"
        case "unpin":
            return f"Unpin stream {wish.stream}"
        case "undrain":
            return f"Undrain {wish.member}"
        case "pause":
            return f"Pause group {wish.group}"
        case "resume":
            return f"Resume group {wish.group}"
        case "rewind":
            return f"Rewind group {wish.group} to {wish.to}"
        case "promote":
            return f"Promote group {wish.group} to {wish.to}"


def shares_of(scene: Scene, moves: Sequence[StreamMove]) -> list[Share]:
    """What each member has before and after the moves."""
    owned = {member: len(rows) for member, rows in scene.owned.items()}
    come = _number(move.to for move in moves)
    go = _number(move.source for move in moves)
    return [
        Share(
            member=member,
            stay=max(0, number - go.get(member, 0)),
            come=come.get(member, 0),
            go=min(number, go.get(member, 0)),
        )
        for member, number in owned.items()
    ]


def is_last(scene: Scene, member: str | None) -> bool:
    """Whether no other member could take this one's streams."""
    return {row.id for row in scene.members if row.state != "draining"} == {member}


def _number(names: Any) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in names:
        if name is not None:
            found[name] = found.get(name, 0) + 1
    return found


def _sentence(found: Forecast, scene: Scene) -> list[tuple[str, bool]]:
    parts = _purpose(found, scene)
    if found.kind in ("pause", "resume"):
        return parts
    if not found.totals.moves:
        return [*parts, (" No stream would move.", False)]
    if found.kind not in ("drain", "move"):
        streams = plural(found.totals.moves, "stream")
        parts += [(" ", False), (streams, True), (" would move", False), *_load(found), (".", False)]
    return [*parts, *_pause_parts(found), *_stays(found)]


def _purpose(found: Forecast, scene: Scene) -> list[tuple[str, bool]]:
    """What the operation is for, and with a drain or a move also what it moves."""
    group, stream, member = found.group, found.stream, found.member
    match found.kind:
        case "drain" if found.totals.moves:
            streams = plural(found.totals.moves, "stream")
            return [
                (f"{member} would hand over its ", False),
                (streams, True),
                *_load(found),
                (", then leave the group.", False),
            ]
        case "drain":
            return [(f"{member} owns nothing and would leave the group.", False)]
        case "undrain":
            return [(f"{member} would stay in the group and take streams again.", False)]
        case "move":
            return _move_parts(found)
        case "unpin":
            return [
                (f"Stream {stream} would no longer be pinned to {scene.plan.pins.get(stream or 0)}.", False)
            ]
        case "rebalance":
            return [(f"{plural(len(scene.plan.pins), 'pin')} would be removed.", False)]
        case "pause":
            what = "would read nothing, keep their streams, and commit what they have read"
            rest = "Fragments are kept and wait. The pause lasts over every restart, until it is resumed."
            return [(f"All members of group {group} {what}. {rest}", False)]
        case "resume":
            return [(f"The members of group {group} would go on where they stopped.", False)]
        case "rewind" | "promote":
            return [(f"{title_of(found)}.", False)]


def _load(found: Forecast) -> list[tuple[str, bool]]:
    totals = found.totals
    if totals.sessions is None or totals.bytes is None:
        return [(" with their open sessions (how many is not known)", False)]
    return [
        (" with ", False),
        (plural(totals.sessions, "open session"), True),
        (f" ({size(totals.bytes)})", False),
    ]


def _move_parts(found: Forecast) -> list[tuple[str, bool]]:
    moved = [move.stream for move in found.moves]
    if found.stream not in moved:
        return [(f"Stream {found.stream} would be pinned to {found.to}, where it is.", False)]
    source = next(move.source for move in found.moves if move.stream == found.stream)
    way = f"from {source} to {found.to}" if source else f"to {found.to}"
    parts = [(f"Stream {found.stream}", True), (f" would move {way} and be pinned there", False)]
    others = len(moved) - 1
    if others:
        parts.append((f"; {plural(others, 'other stream')} would move to keep shares even", False))
    return [*parts, (", all together" if others else "", False), *_load(found), (".", False)]


def _pause_parts(found: Forecast) -> list[tuple[str, bool]]:
    who = "Each stream" if found.totals.moves > 1 else "The stream"
    if found.likely.pause_ms is None:
        return [
            (f" {who} would stand still for a moment; no handover of the last hour says how long.", False)
        ]
    return [
        (f" {who} would likely stand still for about ", False),
        (span(found.likely.pause_ms), True),
        ("; everything else goes on.", False),
    ]


def _stays(found: Forecast) -> list[tuple[str, bool]]:
    return [(" Its process stays until you stop it.", False)] if found.kind == "drain" else []


def _warning(found: Forecast, scene: Scene) -> str:
    if found.kind != "drain" or not is_last(scene, found.member):
        return ""
    return (
        f"{found.member} is the last member of group {found.group}. Until another one joins, its streams "
        "are not read and no session is delivered."
    )


def calls_for(wish: Wish) -> Calls:
    """The operation as a request and as a command."""
    fields = {name: getattr(wish, name) for name in ("kind", "stream", "to", "member", "group")}
    body = {name: value for name, value in fields.items() if value is not None}
    words: list[str] = [wish.kind]
    words += [str(part) for part in (wish.stream, wish.member) if part is not None]
    words += ["--to", wish.to] if wish.to is not None else []
    return Calls(curl=curl("POST", "/operations", body), baton=baton(words, wish.group))


def run_calls(job: str, group: str, parameters: Mapping[str, str | int]) -> Calls:
    """A run of a job as a request and as a command."""
    words = ["run", job]
    for name, value in parameters.items():
        words += ["-p", f"{name}={value}"]
    query = "" if group == DEFAULT_GROUP else f"?group={group}"
    return Calls(curl=curl("POST", f"/jobs/{job}/runs{query}", dict(parameters)), baton=baton(words, group))


def curl(method: str, path: str, body: Mapping[str, Any] | None = None) -> str:
    """A request of control for a shell.

    >>> print(curl("POST", "/operations", {"kind": "drain", "member": "it's"}))
    curl -X POST "$BATON_URL/operations" \\
      -H "content-type: application/json" \\
      -d '{"kind": "drain", "member": "it'"'"'s"}'
    """
    line = f'curl -X {method} "$BATON_URL{path}"' if method != "GET" else f'curl "$BATON_URL{path}"'
    if body is None:
        return line
    data = shlex.quote(msgspec.json.format(msgspec.json.encode(body), indent=0).decode())
    return f'{line} \\\n  -H "content-type: application/json" \\\n  -d {data}'


def baton(words: Sequence[str], group: str) -> str:
    """The command that does the same, and waits for its end."""
    named = [] if group == DEFAULT_GROUP else ["--group", group]
    return shlex.join(["baton", *words, *named, "--wait"])
