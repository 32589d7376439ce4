"""`anole describe`: what this node of a cluster is as a target."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from anole.commands import candidates
from anole.commands.shared import PATH, SPEC, Json, enter_project
from anole.documents import layout


@click.command(epilog="Example: anole describe amd")
@click.argument("target", shell_complete=candidates.targets)
@click.option("--asked", type=Json(), help="What models.yaml says of the target, instead of its entry there.")
@click.option("--output", type=PATH, help="Where the description is written.")
@SPEC
def describe(target: str, asked: Any, output: Path | None, spec: Path) -> None:
    """Describe this node of a cluster as TARGET.

    The project keeps the description, so that the target is the same for all nodes and for the machine that runs the
    workflow.
    """
    from anole.declared.reading import load_spec
    from anole.documents.described import write_described
    from anole.node import Node
    from anole.project.hardware import asked_of, describe_here

    if asked is None:
        (output,) = enter_project(spec, output)
        targets = load_spec(Path(spec.name)).targets
        Node(target, "targets", spec.name).choice(targets, "one of the targets")
        asked = asked_of(targets[target])
    write_described(output or layout.described_path(target), describe_here(asked))
