"""What an operator may ask for, when it is refused, and how it changes the pins.

Pure. Each wish changes something in ZooKeeper (pins, a member's state, the group's pause), which changes what
the members do. `forecasts.py` says what would move, `operation.py` follows a wish to its end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from shared.errors import Conflict, NotFound
from shared.model.cluster import View

Kind = Literal["move", "unpin", "drain", "undrain", "rebalance", "pause", "resume", "rewind", "promote"]


class UnknownMember(NotFound):
    """There is no member of that name in the group."""


class MoveRefused(Conflict):
    """The member cannot take a stream now."""


class NothingToDo(Conflict):
    """What is asked for is so already."""


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What an operator asks for."""

    kind: Kind
    group: str
    stream: Annotated[int | None, Meta(description="of a move or unpin")] = None
    to: Annotated[
        str | None,
        Meta(
            description="of a move: the member that gets the stream; of a rewind: the new group; "
            "of a promotion: the alias"
        ),
    ] = None
    member: Annotated[str | None, Meta(description="of a drain or undrain")] = None


def what_of(wish: Wish) -> str:
    """The wish in a few words, as on the command line.

    >>> what_of(Wish(kind="move", group="g", stream=3, to="b")), what_of(Wish(kind="pause", group="g"))
    ('move 3 to b', 'pause')
    """
    words: list[object] = [wish.kind]
    words += [part for part in (wish.stream, wish.member) if part is not None]
    words += ["to", wish.to] if wish.to is not None else []
    return " ".join(map(str, words))


def check(wish: Wish, view: View) -> None:
    """Raises UnknownMember if the group has no such member, MoveRefused if the recipient cannot take the
    stream, and NothingToDo if there is nothing to undo or the group is paused already.
    """
    for named in (wish.member, wish.to):
        if named is not None and named not in view.members:
            raise UnknownMember(f"there is no member {named!r} in group {wish.group!r}")
    if wish.to is not None and (state := view.members[wish.to].state) != "active":
        raise MoveRefused(f"{wish.to!r} is {state}")
    if (why := _nothing_to_do(wish, view)) is not None:
        raise NothingToDo(why)


def pins_after(wish: Wish, pins: Mapping[int, str]) -> dict[int, str]:
    """The pins after the wish has been carried out.

    A drain also removes the pins to the member that leaves: a pin would take effect again when it returns.

    >>> pins_after(Wish(kind="move", group="g", stream=3, to="b"), {1: "a"})
    {1: 'a', 3: 'b'}
    >>> pins_after(Wish(kind="drain", group="g", member="a"), {1: "a", 3: "b"})
    {3: 'b'}
    """
    match wish.kind:
        case "rebalance":
            return {}
        case "drain":
            return {stream: member for stream, member in pins.items() if member != wish.member}
        case "move" if wish.stream is not None and wish.to is not None:
            return {**pins, wish.stream: wish.to}
        case "unpin":
            return {stream: member for stream, member in pins.items() if stream != wish.stream}
        case _:
            return dict(pins)


def pins_changed(wish: Wish, pins: Mapping[int, str]) -> dict[int, str | None]:
    """The pins before the wish (None: no pin) of the streams whose pin it changes.

    >>> pins_changed(Wish(kind="move", group="g", stream=3, to="b"), {1: "a"})
    {3: None}
    """
    after = pins_after(wish, pins)
    streams = sorted(pins.keys() | after.keys())
    return {n: pins.get(n) for n in streams if pins.get(n) != after.get(n)}


def pins_restored(wish: Wish, before: Mapping[int, str | None], pins: Mapping[int, str]) -> dict[int, str]:
    """The pins once the wish is undone; a pin that somebody has changed since stays as it is.

    >>> pins_restored(Wish(kind="move", group="g", stream=3, to="b"), {3: "a"}, {1: "a", 3: "b"})
    {1: 'a', 3: 'a'}
    >>> pins_restored(Wish(kind="move", group="g", stream=3, to="b"), {3: None}, {3: "c"})
    {3: 'c'}
    """
    restored = dict(pins)
    for stream, member in before.items():
        made = wish.to if wish.kind == "move" else None
        if pins.get(stream) != made:
            continue
        restored.pop(stream, None)
        if member is not None:
            restored[stream] = member
    return restored


def _nothing_to_do(wish: Wish, view: View) -> str | None:
    if wish.kind == "unpin" and wish.stream not in view.pins:
        return f"stream {wish.stream} is not pinned"
    if wish.kind == "undrain" and wish.member is not None and view.members[wish.member].state != "draining":
        return f"{wish.member} is not draining"
    if wish.kind == "pause" and view.pause is not None:
        return f"group {wish.group!r} is paused already, by {view.pause.who or 'somebody'}"
    if wish.kind == "resume" and view.pause is None:
        return f"group {wish.group!r} is not paused"
    return None
