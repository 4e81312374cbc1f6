"""Runs `baton import` against a producer and a control in memory, which answer at one address."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import msgspec
from click.testing import CliRunner, Result

from cli.main import cli
from shared.model.group import GroupSettings
from tests.unit.cli.fake_services import Answer, InMemoryControl, InMemoryProducer, served

NDJSON = ("--format", "ndjson", "--key", "key", "--time", "time", "--time-unit", "ms")


def control_with(**gaps_ms: int) -> InMemoryControl:
    """A control that knows these groups, each with its gap."""
    groups = [
        {"name": name, "settings": msgspec.to_builtins(GroupSettings(gap_ms=gap_ms))}
        for name, gap_ms in gaps_ms.items()
    ]
    return InMemoryControl({"/groups": {"groups": groups}})


def both(producer: InMemoryProducer, control: InMemoryControl) -> Answer:
    """Answers for the producer and for control."""

    async def answer(request: httpx.Request) -> httpx.Response:
        is_producers = request.url.path in ("/table", "/fragments", "/markers")
        return await (producer if is_producers else control).answer(request)

    return answer


@contextlib.contextmanager
def importing(answer: Answer) -> Iterator[Callable[..., Result]]:
    """Runs `baton import FILE` with options, as often as needed, against services with these responses."""
    with served(answer) as url:
        where = (*NDJSON, "--url", url, "--control", url)
        yield lambda file, *options: CliRunner().invoke(cli, ["import", str(file), *where, *options])


def imported(
    file: Path, producer: InMemoryProducer, *options: str, control: InMemoryControl | None = None
) -> Result:
    """The result of one `baton import FILE` with these options."""
    with importing(both(producer, control or control_with(default=1_800_000))) as run:
        return run(file, *options)
