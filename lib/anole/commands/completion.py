"""`anole completion`: commands and names completed by the shell."""

from __future__ import annotations

import click


@click.command(epilog="Example: anole completion fish > ~/.config/fish/completions/anole.fish")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes commands in SHELL.

    The tab key then completes commands, options, files, and the project's builds, models and targets. In bash, put the
    line eval "$(anole completion bash)" into ~/.bashrc, and in zsh, the same with zsh into ~/.zshrc.
    """
    from click.shell_completion import ShellComplete, get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    # Bash's own method runs bash, to warn of versions that no system has any more.
    click.echo(ShellComplete.source(found(context.find_root().command, {}, "anole", "_ANOLE_COMPLETE")))
