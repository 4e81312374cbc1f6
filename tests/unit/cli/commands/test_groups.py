"""Groups from the command line, against control's real HTTP interface over groups in memory."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest
from click.testing import Result

from services.control.core.groups.rewinds import StreamFacts
from shared.model.head import Head
from tests.unit.cli.fake_services import baton, forward
from tests.unit.control.groups_world import GroupsWorld


class Control:
    """Control's HTTP interface in a thread, over the group `default`."""

    def __init__(self) -> None:
        self.world = GroupsWorld()
        found = Head(epoch=1, seq=1, position=100, safe_offset=0, oldest=-1)
        self.world.rewinds.streams = {n: StreamFacts(first=0, end=120, head=found) for n in range(2)}
        asyncio.run(self.world.fill())

    async def answer(self, request: httpx.Request) -> httpx.Response:
        """The response to a request."""
        await self.world.view.step()
        if request.url.path == "/groups":
            rows = self.world.view.served().report.groups
            names = [
                {
                    "name": row.name,
                    "members": row.members,
                    "streams": row.streams,
                    "lag": 0,
                    "aliases": row.aliases,
                }
                for row in rows
            ]
            return httpx.Response(200, json={"groups": [] if request.url.params.get("after") else names})
        return await forward(request, self.world.http)

    def invoke(self, *arguments: str) -> Result:
        """The command's result."""
        return baton(self.answer, *arguments)


@pytest.fixture
def control() -> Control:
    return Control()


def test_a_dry_run_shows_the_starts_and_makes_nothing(control: Control) -> None:
    """A row for each stream, and what there would be to read."""
    answer = control.invoke("rewind", "--to", "0:10,1:110", "--dry-run")

    rows = [line.split() for line in answer.stdout.splitlines()]
    assert ["0", "10", "110", "0", "-"] in rows
    assert ["1", "100", "20", "0", "default", "has", "read", "so", "far"] in rows
    assert "Group default-2 would read 130 records." in answer.stdout
    assert "default-2" not in control.invoke("groups").stdout


def test_a_group_is_made_shown_promoted_and_deleted(control: Control) -> None:
    """Its name is the next free one; what is current is shown as a table or as SQL."""
    made = control.invoke("rewind", "--set", "gap_ms=9", "--streams", "1", "--reason", "why")
    listed = control.invoke("groups", "list")
    shown = control.invoke("groups", "show", "default-2")
    sql = control.invoke("groups", "show", "default-2", "--sql")
    promoted = control.invoke("groups", "promote", "default-2", "--to", "live")
    refused = control.invoke("groups", "delete", "default-2")
    back = control.invoke("groups", "promote", "default", "--to", "live")
    deleted = control.invoke("groups", "delete", "default-2")

    assert made.stdout == "group default-2 is made; start members with BATON_GROUP=default-2\n"
    assert "default-2" in listed.stdout
    assert ["default", "sessions", "1", "0"] in [line.split() for line in shown.stdout.splitlines()]
    assert "first_offset < 100" in sql.stdout
    assert [one.exit_code for one in (promoted, refused, back, deleted)] == [0, 1, 0, 0]
    assert "alias 'live'" in str(refused.exception)


@pytest.mark.parametrize("place", ["queue.0001,0", "sessions,0", "fragments.0001,1", "fragments.rejected,0"])
def test_offsets_of_what_is_no_stream_are_refused(control: Control, tmp_path: Path, place: str) -> None:
    """A file of another group of Kafka's names other topics; their numbers are no streams."""
    path = tmp_path / "offsets.csv"
    path.write_text(f"fragments.0000,0,30\n{place},40\n")

    answer = control.invoke("rewind", "--as", "again", "--to-file", str(path), "--dry-run")

    assert answer.exit_code == 2
    assert "is not the log of a stream" in answer.stderr


def test_offsets_are_taken_from_a_file_of_kafkas_tool(control: Control, tmp_path: Path) -> None:
    """CSV as `kafka-consumer-groups` exports it."""
    path = tmp_path / "offsets.csv"
    path.write_text("fragments.0000,0,30\nfragments.0001,0,40\n")

    answer = control.invoke("rewind", "--as", "again", "--to-file", str(path), "--dry-run")

    rows = [line.split() for line in answer.stdout.splitlines()]
    assert (["0", "30", "90", "0", "-"] in rows, ["1", "40", "80", "0", "-"] in rows) == (True, True)
