"""Commands for a machine: described, calibrated, its devices lent, and its shells taught to complete commands."""

from __future__ import annotations

from pathlib import Path

import click

from anole.commands import candidates
from anole.commands.shared import SPEC, enter_project, show, without_torch


@click.command(epilog="Example: anole doctor")
def doctor() -> None:
    """Describe this machine: hardware, software, peak speed."""
    from anole.report.doctor import render_machine

    for group in render_machine():
        show(group)


@click.command(epilog="Example: anole calibrate cpu --minutes 15")
@click.argument("target", shell_complete=candidates.targets)
@click.option("--minutes", type=click.FloatRange(0), default=30.0, show_default=True, help="Begin no layer after that.")
@SPEC
def calibrate(target: str, minutes: float, spec: Path) -> None:
    """Record trials on common layers for TARGET, with which searches begin.

    TARGET is a name in models.yaml. Trials of similar layers say which configs to try first. Running it again
    continues.
    """
    from anole.config.reading import load_spec
    from anole.documents import layout
    from anole.node import Node
    from anole.project.hardware import describe_target
    from anole.tune.calibration import calibrate

    enter_project(spec)
    declared = load_spec(Path(spec.name))
    Node(target, "targets", declared.file).choice(declared.targets, "one of the targets")
    found = declared.targets[target]
    n_done, n_layers = calibrate(describe_target(found), layout.SHARDS, found.remote, 60 * minutes)
    again = "" if n_done == n_layers else "; running it again continues"
    click.echo(f"{target}: {n_done} of {n_layers} common layers have their trials{again}")


@click.command(epilog="Example: anole serve --host 0.0.0.0 --port 9090")
@click.option("--tracker", help="host:port of TVM's RPC tracker; without it, clients connect to this machine itself.")
@click.option("--key", help="The tracker's name for devices of this kind.")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on. The default serves only this machine; 0.0.0.0 serves all that reach it.",
)
@click.option("--port", type=click.IntRange(1, 65535), default=9090, show_default=True, help="Port to listen on.")
@click.option("--threads", type=click.IntRange(1), help="CPU threads that run kernels.  [default: all cores]")
def serve(tracker: str | None, key: str | None, host: str, port: int, threads: int | None) -> None:
    """Lend this machine's devices to other machines.

    They can then tune for these devices. Whoever reaches the server can run any program here, so give --host only
    within a trusted network.
    """
    from anole.host.machine import available_cores
    from anole.targets.rpc.address import Remote
    from anole.targets.rpc.server import serve

    if (tracker is None) != (key is None):
        raise click.UsageError("give --tracker and --key together, or neither")
    without_torch()
    named = Remote.from_json({"rpc": tracker, "key": key} if tracker is not None else {})
    serve(host, port, named, threads or available_cores())


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
