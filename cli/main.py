"""`baton`: the command line. It names every command; each is imported only when it is run.

So `baton --help` is quick, although commands behind it need Kafka, HTTP or rich. A BatonError of any
command ends here: one sentence on stderr, exit code 1.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass

import click

from shared.errors import BatonError, SettingsInvalid


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """Where a command lives, as `module:attribute`, and what `baton --help` says about it."""

    place: str
    help: str

    def load(self) -> click.Command:
        """The command itself; imports its module."""
        module, _, attribute = self.place.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command


COMMANDS = {
    "up": LazyCommand("cli.stack.up_command:up", "Start the local stack and keep it running."),
    "down": LazyCommand("cli.stack.down_command:down", "Stop the local stack."),
    "demo": LazyCommand("cli.demo.command:demo", "Show the whole path at work, from a log to the proof."),
    "import": LazyCommand("cli.importing.command:import_command", "Send a log file as fragments over HTTP."),
    "rejected": LazyCommand(
        "cli.rejects.command:rejected", "List what was refused, by reason; send it again."
    ),
    "generate": LazyCommand("cli.commands.generate:generate_command", "Make a log of web visits."),
    "streams": LazyCommand(
        "cli.commands.show:streams", "List the streams, who owns them and how far they are."
    ),
    "members": LazyCommand("cli.commands.show:members", "List the members of a group."),
    "producers": LazyCommand("cli.commands.show:producers", "List the producers."),
    "groups": LazyCommand("cli.commands.show:groups", "List the groups and their settings."),
    "plan": LazyCommand("cli.commands.show:plan", "Show which streams would move, and why."),
    "events": LazyCommand("cli.commands.events:events", "Show what happened, and follow what happens."),
    "move": LazyCommand("cli.commands.operations:move", "Pin a stream to a member; its owner hands it over."),
    "drain": LazyCommand(
        "cli.commands.operations:drain", "Have a member hand over all its streams, and leave."
    ),
    "rebalance": LazyCommand(
        "cli.commands.operations:rebalance", "Take all pins away, so that shares are even."
    ),
    "operations": LazyCommand(
        "cli.commands.operations:operations", "List what was moved, drained and rebalanced."
    ),
    "lag": LazyCommand(
        "cli.commands.show:lag", "Show how far each stream is behind, as Kafka's own tools do."
    ),
    "jobs": LazyCommand("cli.commands.jobs:jobs", "List the Spark jobs."),
    "run": LazyCommand("cli.commands.jobs:run", "Run a Spark job."),
    "runs": LazyCommand("cli.commands.jobs:runs", "List the runs of Spark jobs."),
    "cancel": LazyCommand("cli.commands.jobs:cancel", "Cancel a run."),
    "settings": LazyCommand("cli.commands.settings:settings_command", "Print what can be set, as Markdown."),
    "jars": LazyCommand("cli.stack.jars_command:jars", "Fetch the jars of the lock file."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported on their first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the table above."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, or None."""
        found = COMMANDS.get(cmd_name)
        return found.load() if found else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the table without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.help) for name, command in COMMANDS.items()])


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="baton")
def cli() -> None:
    """Baton: fragments over HTTP in, whole sessions out, each exactly once."""


def main() -> None:
    """Runs the command that the arguments name; ends the process with its exit code."""
    try:
        cli(prog_name="baton")
    except SettingsInvalid as error:
        for fault in error.faults:
            click.echo(f"baton: {fault}", err=True)
    except BatonError as error:
        click.echo(f"baton: {error.detail}", err=True)
    sys.exit(1)


if __name__ == "__main__":
    main()
