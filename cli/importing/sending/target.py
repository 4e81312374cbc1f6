"""What an import must know before it sends anything: streams, the groups' settings, what its key allows.

Used by `cli/importing/run.py`. Later requests have more patience, because the services have answered once.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from cli.http.client import BatonClient, connect
from cli.http.control import connect_to_control
from cli.http.requests import NotAllowed
from cli.importing.sending.closing import TimeBounds, bounds_of
from shared.errors import BatonError, InvalidInput, NotFound, Unavailable
from shared.model.group import GroupSettings
from shared.model.routing import StreamTable

STARTING_S = 60.0
"""Control has the groups only after it has read Kafka once, which a busy machine delays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The Baton to import into; `cluster` names its Kafka cluster and namespace, if they are known."""

    table: StreamTable
    cluster: str
    bounds: TimeBounds


class _Group(msgspec.Struct, frozen=True):
    name: str
    # None before the first member of the group has started
    settings: GroupSettings | None = None


async def look_up(url: str, write_key: str, control: str | None, group: str | None) -> Target:
    """The target behind the producer `url`; `control` is None if the import sends no marker.

    Without control the bounds are those of a group with default settings. Raises NotAllowed when a marker is
    to be sent and the key does not allow it, Unavailable when one of the two does not answer, InvalidInput
    when control does not know the group (None: any will do).
    """
    async with connect(url, patience_s=STARTING_S, bearer=write_key) as producer:
        table, cluster = await producer.table()
        if control is not None:
            await _check_markers(producer)
    settings = [] if control is None else await _settings(control, group)
    return Target(table=table, cluster=cluster, bounds=bounds_of(settings))


async def _check_markers(producer: BatonClient) -> None:
    try:
        await producer.check_markers()
    except NotAllowed as error:
        raise NotAllowed(
            f"{error.detail}; an import ends with a marker: use a write key with the scopes `write+mark`, or"
            " leave the sessions open with --no-marker"
        ) from None


async def _settings(url: str, group: str | None) -> list[GroupSettings]:
    async with connect_to_control(url, patience_s=STARTING_S) as control:
        try:
            answer = await control.pages("/groups", "groups", "name")
        except (NotFound, Unavailable) as error:
            raise Unavailable(
                f"{error.detail}; control knows which sessions a marker would close:"
                " correct --control, or leave the sessions open with --no-marker"
            ) from None
    try:
        groups = msgspec.convert(answer["groups"], list[_Group])
    except msgspec.ValidationError as error:
        raise BatonError(f"{url} does not list groups as control does: {error}") from None
    names = [known.name for known in groups]
    if group is not None and group not in names:
        listed = ", ".join(names) or "no group yet"
        raise InvalidInput(f"there is no group {group!r}; control knows {listed}")
    return [known.settings for known in groups if known.settings is not None]
