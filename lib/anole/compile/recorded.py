"""What the description of a build says of its compilation: enough to compile the same network with the same configs."""

from __future__ import annotations

from anole.documents.build import Build
from anole.documents.manifest import ListedTask, Manifest, Origin
from anole.documents.receipt import Receipt, Receipts


def recorded_manifest(build: Build) -> Manifest:
    """Returns the manifest of a build's network, without the files that it came from."""
    model = build.model_spec
    tasks = tuple(ListedTask(each.key, each.label, each.flop, each.weight, each.layers) for each in build.tasks)
    origin = Origin(build.entry, build.target_description, {})
    flop = sum(task.flop * task.weight for task in tasks)
    return Manifest(model.name, build.target, model.source, model.inputs, origin, tasks, flop)


def recorded_receipts(build: Build) -> Receipts:
    """Returns a receipt for each task with the config that was compiled, tuned or not."""
    return {
        task.key: Receipt(task.key, task.run_key or "", build.trials, task.config or task.unscheduled, task.latency_s)
        for task in build.tasks
        if task.config is not None or task.unscheduled is not None
    }
