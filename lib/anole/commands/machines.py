"""Commands for a machine: doctor, calibrate, serve and shell completion."""

from __future__ import annotations

from pathlib import Path

import click

from anole.commands import candidates
from anole.commands.shared import SPEC, block_torch, enter_project, show


@click.command(epilog="Example: anole doctor")
def doctor() -> None:
    """Describe this machine: hardware, software, peak speed."""
    from anole.report.doctor import render_machine

    for group in render_machine():
        show(group)


@click.command(epilog="Example: anole calibrate cpu --minutes 15")
@click.argument("target", shell_complete=candidates.targets)
@click.option(
    "--minutes", type=click.FloatRange(0), default=30.0, show_default=True, help="Start no layers after this time."
)
@SPEC
def calibrate(target: str, minutes: float, spec: Path) -> None:
    """Record trials of common layers on TARGET.

    TARGET is a name in models.yaml. The trials warm-start later searches for similar layers. Running the command again
    continues the calibration.
    """
    from anole.config.reading import load_spec
    from anole.documents import layout
    from anole.node import Node
    from anole.project.hardware import describe_target
    from anole.tune.calibration import calibrate

    enter_project(spec)
    project = load_spec(Path(spec.name))
    Node(target, "targets", project.file).choice(project.targets, "one of the targets")
    spec_entry = project.targets[target]
    n_done, n_layers = calibrate(describe_target(spec_entry), layout.SHARDS, spec_entry.remote, 60 * minutes)
    hint = "" if n_done == n_layers else "; run the command again to continue"
    click.echo(f"{target}: {n_done} of {n_layers} common layers are calibrated{hint}")


@click.command(epilog="Example: anole serve --host 0.0.0.0 --port 9090")
@click.option("--tracker", help="host:port of TVM's RPC tracker; without it, clients connect directly to this machine.")
@click.option("--key", help="Key under which the tracker lists the devices.")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on. The default accepts only local connections; 0.0.0.0 accepts any.",
)
@click.option("--port", type=click.IntRange(1, 65535), default=9090, show_default=True, help="Port to listen on.")
@click.option("--threads", type=click.IntRange(1), help="CPU threads that run kernels.  [default: all cores]")
def serve(tracker: str | None, key: str | None, host: str, port: int, threads: int | None) -> None:
    """Lend this machine's devices to other machines.

    The other machines can then tune for these devices. Every client that reaches the server can run arbitrary programs
    on this machine, so give --host only within a trusted network.
    """
    from anole.host.machine import available_cores
    from anole.targets.rpc.address import Remote
    from anole.targets.rpc.server import serve

    if (tracker is None) != (key is None):
        raise click.UsageError("give --tracker and --key together, or neither")
    block_torch()
    tracker_entry = Remote.from_json({"rpc": tracker, "key": key} if tracker is not None else {})
    serve(host, port, tracker_entry, threads or available_cores())


@click.command(epilog="Example: anole completion fish > ~/.config/fish/completions/anole.fish")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes commands in SHELL.

    The tab key then completes commands, options, files, and the project's builds, models and targets. For bash, put the
    line eval "$(anole completion bash)" into ~/.bashrc; for zsh, the same with zsh into ~/.zshrc.
    """
    from click.shell_completion import ShellComplete, get_completion_class

    completion_class = get_completion_class(shell)
    assert completion_class is not None
    # The override for bash runs bash, only to warn about obsolete versions.
    click.echo(ShellComplete.source(completion_class(context.find_root().command, {}, "anole", "_ANOLE_COMPLETE")))
