"""`baton`: the command line. It lists every command and imports a command only when it runs.

So `baton --help` is fast, although commands need Kafka, HTTP or rich. An error of any command ends here, as
one sentence on standard error and an exit code of `cli/terminal/exit_codes.py`.
"""

from __future__ import annotations

import importlib.metadata
import io
import logging
import os
import pkgutil
import sys
from typing import NamedTuple

import click
from click.shell_completion import CompletionItem

from cli.terminal.escaping import echo
from cli.terminal.exit_codes import ExitCode, exit_code_for
from shared.errors import BatonError, SettingsInvalid
from shared.service.known_settings import misspelt


class LazyCommand(NamedTuple):
    """A command's place, as `module:attribute`, and its line in `baton --help`."""

    place: str
    help: str

    def load(self) -> click.Command:
        """Imports the command's module and returns the command."""
        command = pkgutil.resolve_name(self.place)
        assert isinstance(command, click.Command)
        return command


COMMANDS = {
    "up": LazyCommand("cli.stack.commands.up:up", "Start the local stack and keep it running."),
    "down": LazyCommand("cli.stack.commands.down:down", "Stop the local stack."),
    "demo": LazyCommand("cli.demo.command:demo", "Run the whole pipeline on a log and prove the result."),
    "import": LazyCommand("cli.importing.command:import_command", "Send a log file as fragments over HTTP."),
    "rejected": LazyCommand("cli.rejects.command:rejected", "List rejected fragments, or send them again."),
    "find": LazyCommand(
        "cli.commands.find:find", "Find a key's stream, owner and sessions, or a day's sessions."
    ),
    "session": LazyCommand("cli.commands.find:session", "Show a finished session with its fragments."),
    "sessions": LazyCommand("cli.commands.sessions:sessions", "Show delivered sessions, or follow new ones."),
    "generate": LazyCommand("cli.visits.command:generate_command", "Generate a log of web visits."),
    "top": LazyCommand("cli.commands.top:top", "Watch a group live: its members, its lag, its rates."),
    "streams": LazyCommand("cli.commands.show:streams", "List the streams with their owners and lag."),
    "stream": LazyCommand("cli.commands.stream:stream", "Show one stream in full."),
    "members": LazyCommand("cli.commands.show:members", "List the members of a group."),
    "producers": LazyCommand("cli.commands.show:producers", "List the producers."),
    "groups": LazyCommand("cli.commands.groups:groups", "List the groups; show, promote or delete one."),
    "rewind": LazyCommand(
        "cli.commands.groups:rewind", "Read again what a group has read, in another group."
    ),
    "plan": LazyCommand("cli.commands.show:plan", "Show which streams would move, and why."),
    "events": LazyCommand("cli.commands.events:events", "Show recent events, or follow new ones."),
    "move": LazyCommand("cli.commands.operations:move", "Pin a stream to a member; its owner hands it over."),
    "drain": LazyCommand("cli.commands.operations:drain", "Hand over all streams of a member and remove it."),
    "undrain": LazyCommand("cli.commands.operations:undrain", "Make a draining member take streams again."),
    "unpin": LazyCommand("cli.commands.operations:unpin", "Remove the pin of a stream."),
    "rebalance": LazyCommand("cli.commands.operations:rebalance", "Remove all pins; even out the shares."),
    "pause": LazyCommand("cli.commands.operations:pause", "Make a group read nothing for now."),
    "resume": LazyCommand("cli.commands.operations:resume", "Make a paused group read again."),
    "operations": LazyCommand(
        "cli.commands.operations:operations", "List what operators asked for, or cancel it."
    ),
    "lag": LazyCommand("cli.commands.show:lag", "Show each stream's lag, like kafka-consumer-groups."),
    "jobs": LazyCommand("cli.commands.jobs:jobs", "List the Spark jobs."),
    "run": LazyCommand("cli.commands.jobs:run", "Run Spark jobs."),
    "runs": LazyCommand("cli.commands.runs:runs", "List the runs of Spark jobs, or look at one."),
    "schedules": LazyCommand("cli.commands.jobs:schedules", "List the schedules of Spark jobs."),
    "cancel": LazyCommand("cli.commands.jobs:cancel", "Cancel a run."),
    "sql": LazyCommand("cli.commands.sql:sql", "Query the tables of the lake with SQL."),
    "spark": LazyCommand("cli.stack.commands.spark:spark_group", "Prepare a Spark cluster for the jobs."),
    "kafka": LazyCommand("cli.commands.kafka:kafka_group", "Show a record, or repair a topic or a stream."),
    "offsets": LazyCommand("cli.commands.offsets:offsets", "Show, export or import offsets of Kafka groups."),
    "zookeeper": LazyCommand("cli.commands.zookeeper:zookeeper_group", "Lock or unlock Baton's znodes."),
    "mirror": LazyCommand("cli.commands.mirror:mirror", "Copy to another cluster; take over there."),
    "queue": LazyCommand("cli.commands.queue:queue_group", "Put, lease and settle items of queues."),
    "doctor": LazyCommand("cli.commands.doctor:doctor", "Check what Baton stands on, and say what to do."),
    "settings": LazyCommand("cli.commands.settings:settings_command", "Print all settings as Markdown."),
    "jars": LazyCommand("cli.stack.commands.jars:jars", "Download the jars of the lock file."),
    "completion": LazyCommand("cli.commands.completion:completion", "Let a shell complete commands."),
}
COMPLETING = "_BATON_COMPLETE"
"""The variable with which a shell asks for completions (`cli/commands/completion.py`)."""


class LazyGroup(click.Group):
    """A group whose commands are imported on their first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names in the order of COMMANDS."""
        # by task, not by alphabet
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, or None."""
        found = COMMANDS.get(cmd_name)
        return found.load() if found else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes COMMANDS without importing anything."""
        with formatter.section("Commands"):
            # click would import every command for its help
            formatter.write_dl([(name, command.help) for name, command in COMMANDS.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the exit codes."""
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(int(code)), code.meaning) for code in ExitCode])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands, without importing any, and the options of `baton` itself."""
        found = [
            CompletionItem(name, help=command.help)
            for name, command in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)


def _version() -> str:
    """The installed version; containers hold the code without an installation."""
    try:
        return importlib.metadata.version("baton")
    except importlib.metadata.PackageNotFoundError:
        return "(not installed as a package)"


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.version_option(_version())
def cli() -> None:
    """Baton: fragments over HTTP in, whole sessions out, each exactly once."""
    # aiokafka logs what it also raises; a person gets one sentence, from the error
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)


def main() -> None:
    """Runs the command and exits with its exit code."""
    # a shell that asks for completions would print them into the line that is being typed
    for sentence in misspelt(os.environ) if COMPLETING not in os.environ else ():
        echo(f"baton: {sentence}", err=True)
    sys.exit(_run())


def _run() -> int:
    try:
        # not standalone, where click answers Ctrl-C with `Aborted!` and exit code 1
        code = cli(prog_name="baton", standalone_mode=False)
    except click.ClickException as error:
        # it may quote a name out of a folder of others
        shown = io.StringIO()
        error.show(shown)
        echo(shown.getvalue(), err=True, nl=False)
        return error.exit_code
    except click.Abort:
        echo("baton: interrupted", err=True)
        return ExitCode.INTERRUPTED
    except BatonError as error:
        for fault in error.faults if isinstance(error, SettingsInvalid) else [error.detail]:
            echo(f"baton: {fault}", err=True)
        return exit_code_for(error)
    except OSError as error:
        # a file or folder that cannot be used; anything else is a bug, and needs its traceback
        if error.filename is None:
            raise
        echo(f"baton: {os.fsdecode(error.filename)}: {error.strerror}", err=True)
        return ExitCode.FAILED
    # click returns the code of `ctx.exit`, or what the command returned, which is None
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    main()
