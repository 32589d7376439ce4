"""`anole completion`: commands and names completed by the shell."""

from __future__ import annotations

import click


@click.command(epilog="Example: anole completion bash > ~/.local/share/bash-completion/completions/anole")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes commands in SHELL.

    It completes commands, options, files, and the project's builds, models and targets. Put its output where your shell
    looks for such scripts, as the example does. For one session, run eval "$(anole completion bash)" in bash, and in
    fish: anole completion fish | source
    """
    from click.shell_completion import ShellComplete, get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    # Bash's own method runs bash, to warn of versions that no system has any more.
    click.echo(ShellComplete.source(found(context.find_root().command, {}, "anole", "_ANOLE_COMPLETE")))
