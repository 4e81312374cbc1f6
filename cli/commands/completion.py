"""`baton completion`: the script with which a shell completes commands, options and their choices."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from cli.main import COMPLETING
from cli.terminal.escaping import echo

INSTALL = {
    "bash": 'eval "$(baton completion bash)"     # in ~/.bashrc',
    "zsh": 'eval "$(baton completion zsh)"      # in ~/.zshrc',
    "fish": "baton completion fish | source     # in ~/.config/fish/config.fish",
}


@click.command("completion", epilog="\b\n" + "\n".join(INSTALL.values()))
@click.argument("shell", type=click.Choice(list(INSTALL)))
def completion(shell: str) -> None:
    """Print the script that makes a SHELL complete `baton`; the shell runs it at its start."""
    found = get_completion_class(shell)
    assert found is not None
    # the script alone needs neither the command nor its context
    echo(found(click.Command("baton"), {}, "baton", COMPLETING).source())
