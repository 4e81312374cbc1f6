"""`baton queue`: a command per request to the queue service; `work` runs a program for each item."""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

import click
import msgspec

from cli.commands.control import Answer, ask, print_list
from cli.commands.queue_work import Work, check_program, ended_by_signals, work_on
from cli.http.client import BatonClient, connect
from cli.terminal.layout import Column
from cli.terminal.lists import formats_option
from cli.terminal.options import CONTROL_URL, address_option, option, together
from cli.terminal.output import Columns, print_json
from shared.errors import InvalidInput

QUEUE_URL = "http://127.0.0.1:8002"
PATIENCE_S = 10.0
queue_options = together(
    address_option("--url", "BATON_QUEUE_URL", "queue", QUEUE_URL, "Base URL of the queue service."),
    option("--key", "BATON_QUEUE_KEY", "", "Key, if the service requires one."),
)
QUEUE_COLUMNS: Columns = {
    "QUEUE": "queue",
    "READY": "ready",
    "LEASED": "leased",
    "WAITING": "waiting",
    "DEAD": "dead",
    "OLDEST": Column(lambda queue: _age(queue["oldest_age_s"]), rank=1),
}
dry_run_option = click.option("--dry-run", is_flag=True, help="Only say how many items it would be.")
acting_options = together(
    dry_run_option,
    click.option(
        *("--reason", "reason"),
        metavar="TEXT",
        help="Why; then control does it, with your token and not a key, and an event keeps who and why.",
    ),
    address_option("--control", "BATON_URL", "control", CONTROL_URL, "Base URL of control, for --reason."),
)
lease_option = click.option(
    "--lease", "lease_s", type=click.FloatRange(1, 43_200), help="Seconds of a lease; default: the queue's."
)


@click.group("queue")
def queue_group() -> None:
    """Put items into queues, lease and settle them, look after queues, or run a command for each item."""


@queue_group.command("list")
@queue_options
@formats_option
def list_queues(url: str, key: str, output: str) -> None:
    """List the queues with what they hold."""
    print_list(_call(url, key, "GET", ""), "queues", output, QUEUE_COLUMNS)


@queue_group.command()
@click.argument("queue")
@queue_options
def show(queue: str, url: str, key: str) -> None:
    """Show a queue with its settings."""
    print_json(_call(url, key, "GET", queue))


@queue_group.command()
@click.argument("queue")
@click.option("--over", help="Existing topic whose records are the items, such as `sessions`.")
@click.option("--partitions", type=int, help="Partitions of its own topic.")
@lease_option
@click.option("--max-attempts", type=int, help="Leases after which an item is a dead letter; 0: never.")
@click.option("--repeat-ms", type=int, help="How long the id of an acked item stays known.")
@click.option("--keep", "keep_s", type=float, help="Seconds from its put that an item stays, done or not.")
@queue_options
def create(queue: str, url: str, key: str, **settings: Any) -> None:
    """Create a queue, or change the settings that are given."""
    given = {name: value for name, value in settings.items() if value is not None}
    print_json(_call(url, key, "PUT", queue, given))


@queue_group.command()
@click.argument("queue")
@queue_options
def delete(queue: str, url: str, key: str) -> None:
    """Delete a queue with its items and its dead letters; not a topic that it is over."""
    _call(url, key, "DELETE", queue)


@queue_group.command()
@click.argument("queue")
@click.argument("data", nargs=-1)
@click.option("--id", "id_", default="", show_default=False, help="Id of the item; repeats are dropped.")
@queue_options
def put(queue: str, data: tuple[str, ...], id_: str, url: str, key: str) -> None:
    """Put items: each DATA is JSON; without any, standard input has items as lines `{"data": …, "id": …}`."""
    if id_ and len(data) != 1:
        raise click.UsageError("--id is for one DATA")
    lines = sys.stdin.buffer.read().split(b"\n") if not data else [_item(one, id_) for one in data]
    answer = _call(url, key, "POST", f"{queue}/items", b"\n".join(map(_with_id, lines)))
    print_json(answer)
    if answer["rejected"]:
        raise InvalidInput(f"{len(answer['rejected'])} items were rejected")


@queue_group.command()
@click.argument("queue")
@click.option("-n", "--max", "count", type=click.IntRange(1, 100), default=1, help="Items at most.")
@lease_option
@click.option("--wait", "wait_s", type=click.FloatRange(0, 20), default=0.0, help="Seconds to wait for one.")
@queue_options
def lease(queue: str, count: int, lease_s: float | None, wait_s: float, url: str, key: str) -> None:
    """Lease items, and print them with their receipts."""
    asked = {"max": count, "wait_s": wait_s} | ({} if lease_s is None else {"lease_s": lease_s})
    print_json(_call(url, key, "POST", f"{queue}/lease", asked))


def _settling(name: str, help_text: str, *options: click.Option) -> None:
    """Adds a command that takes receipts."""

    def settle(queue: str, receipts: tuple[str, ...], url: str, key: str, **more: Any) -> None:
        given = {option: value for option, value in more.items() if value is not None}
        print_json(_call(url, key, "POST", f"{queue}/{name}", {"receipts": receipts} | given))

    arguments = [click.Argument(["queue"]), click.Argument(["receipts"], nargs=-1, required=True)]
    command = click.Command(name, params=[*arguments, *options], callback=settle, help=help_text)
    queue_group.add_command(queue_options(command))  # type: ignore[arg-type]


_settling("ack", "Say that leased items are done.")
_settling(
    "release",
    "Give leased items back.",
    click.Option(["--delay", "delay_s"], type=float, help="Seconds until they may be leased again."),
)
_settling(
    "reject",
    "Make leased items dead letters.",
    click.Option(["--why"], help="The reason, which the dead letter shows."),
)
_settling(
    "extend",
    "Extend leases, from now.",
    click.Option(["--lease", "lease_s"], type=float, help="Seconds; default: the queue's."),
)


@queue_group.command()
@click.argument("queue")
@acting_options
@queue_options
def purge(queue: str, url: str, key: str, **asked: Any) -> None:
    """Drop all items, leased ones too."""
    print_json(_act(queue, "purge", url, key, **asked))


@queue_group.command()
@click.argument("queue")
@click.argument("to")
@dry_run_option
@queue_options
def seek(queue: str, to: str, dry_run: bool, url: str, key: str) -> None:
    """Go on at TO: `earliest`, `latest`, a time (ms or RFC 3339), or offsets by partition (`0=17,1=4`)."""
    place: Any = dict(_pair(one) for one in to.split(",")) if "=" in to else int(to) if to.isdecimal() else to
    print_json(_call(url, key, "POST", f"{queue}/seek", {"to": place, "dry_run": dry_run}))


@queue_group.command()
@click.argument("queue")
@acting_options
@queue_options
def redrive(queue: str, url: str, key: str, **asked: Any) -> None:
    """Put the dead letters of a queue back into it."""
    print_json(_act(queue, "redrive", url, key, **asked))


@queue_group.command(context_settings={"ignore_unknown_options": True})
@click.argument("queue")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option(
    "--lease", "lease_s", type=click.FloatRange(1, 43_200), default=30.0, help="Seconds of a lease."
)
@click.option("--until-empty", is_flag=True, help="End when there is nothing to lease.")
@queue_options
def work(queue: str, command: tuple[str, ...], lease_s: float, until_empty: bool, url: str, key: str) -> None:
    """Run COMMAND for each item, one after the other: `baton queue work mail -- ./send`.

    The item's data is its standard input. The lease is extended while it runs. Exit code 0 acknowledges the
    item; any other gives it back, for 1 s the first time, then for twice as long each time, up to an hour.
    Ctrl-C, SIGTERM and SIGHUP end the command and give its item back at once.
    """
    todo = Work(queue=_path(queue), command=command, lease_s=lease_s, until_empty=until_empty)
    check_program(command)

    async def work(client: BatonClient) -> None:
        with ended_by_signals():
            await work_on(client, todo)

    _connected(url, key, work)


def _connected(url: str, key: str, call: Callable[[BatonClient], Awaitable[Any]]) -> Any:
    async def connected() -> Any:
        async with connect(url, patience_s=PATIENCE_S, bearer=key) as client:
            return await call(client)

    return asyncio.run(connected())


def _act(
    queue: str, act: str, url: str, key: str, *, dry_run: bool, reason: str | None, control: str
) -> Answer:
    """Purges or redrives a queue: the queue service does, or with a reason control has it done."""
    if reason is None:
        return _call(url, key, "POST", f"{queue}/{act}", {"dry_run": dry_run})
    body = {"dry_run": dry_run, "reason": reason}
    answer: Answer = ask(control, lambda client: client.act_on_queue(queue, act, body))
    return answer


def _call(url: str, key: str, method: str, path: str, body: Any = None) -> Answer:
    queue, _, rest = path.partition("/")
    place = "/".join(filter(None, ("/queues", _path(queue), rest)))
    answer: Answer = _connected(url, key, lambda client: client.call(method, place, body))
    return answer


def _path(queue: str) -> str:
    return quote(queue, safe="")


def _item(data: str, id_: str) -> bytes:
    try:
        raw = msgspec.json.decode(data.encode(), type=msgspec.Raw)
    except msgspec.DecodeError as error:
        raise InvalidInput(f"{data[:80]!r} is not JSON: {error}") from None
    return msgspec.json.encode({"data": raw} | ({"id": id_} if id_ else {}))


def _with_id(line: bytes) -> bytes:
    """The item with an id, so that a put can be repeated when its answer is lost; what is no item stays."""
    try:
        item = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:
        return line
    return msgspec.json.encode({"id": uuid.uuid4().hex} | item)


def _pair(text: str) -> tuple[str, int]:
    partition, _, offset = text.partition("=")
    if not (partition.isdecimal() and offset.isdecimal()):
        raise InvalidInput(f"{text!r} is not PARTITION=OFFSET")
    return partition, int(offset)


def _age(age_s: float | None) -> str:
    return "" if age_s is None else f"{age_s:,.0f} s"
