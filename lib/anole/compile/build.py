"""Builds: a network compiled with the best configs known, as a folder that stands by itself."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from anole.compile.folder import new_folder, write_description, write_library
from anole.compile.matching import Match, coverage, match_tasks, warn_of_untuned
from anole.errors import BuildError, cause
from anole.extract.load import load_model
from anole.host.machine import software_versions
from anole.record import utc_now
from anole.spec.entries import ModelSpec
from anole.targets import get_target
from anole.targets.base import Device
from anole.targets.vta.target import VtaTarget

if TYPE_CHECKING:
    from anole.extract.graph import Layer
    from anole.extract.imported import Imported

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BuildSettings:
    """What a build is called and how its tasks were tuned.

    Attributes:
        trials: the budget: of each task or, where it is shared, of all together.
    """

    name: str
    preset: str
    trials: int
    shared: bool
    seed: int


def compile_build(
    model: ModelSpec,
    manifest: Mapping[str, Any],
    settings: BuildSettings,
    receipts: Mapping[str, Mapping[str, Any]],
    folder: Path,
    imported: Imported | None = None,
) -> dict[str, Any]:
    """Compiles a network into a folder, which appears whole or not at all.

    Args:
        model: the network.
        manifest: what extracting it found, with the target's description.
        settings: of the build.
        receipts: of tuned tasks, by the task's key; a task without one has the template's default config, and
            is warned of.
        folder: where the build goes; what is there is replaced.
        imported: the network where it was loaded before, which takes seconds; it stays as it is.

    Returns:
        What ``build.json`` says.

    Raises:
        ExtractError: the network cannot be loaded.
        BuildError: it is not what was extracted, it cannot be compiled, or the folder cannot be written.
    """
    target = get_target(manifest["target_description"])
    imported = imported if imported is not None else load_model(model)
    from anole.extract.graph import find_layers

    layers = find_layers(imported)
    workloads = [layer.workload for layer in layers]
    taken = [workload for position, workload in enumerate(workloads) if target.takes(workload, position)]
    matches = match_tasks(manifest, taken, receipts, target)
    with new_folder(folder) as made:
        if isinstance(target, VtaTarget):
            matches, parts = _compile_for_accelerator(model, imported, matches, receipts, target, made)
        else:
            matches, parts = _compile(model, imported, layers, matches, cast(Device, target), made)
        warn_of_untuned(settings.name, matches)
        _log.info("%s: %.1f %% of the work is tuned", settings.name, 100 * coverage(matches)["share"])
        description = _describe(model, imported, manifest, settings, matches)
        size_bytes = sum(path.stat().st_size for path in made.rglob("*") if path.is_file())
        complete = {**description, **parts, "size_bytes": size_bytes}
        write_description(made, complete)
    return complete


def _describe(
    model: ModelSpec, imported: Imported, manifest: Mapping[str, Any], settings: BuildSettings, matches: list[Match]
) -> dict[str, Any]:
    return {
        "schema": 1,
        "name": settings.name,
        "model": model.name,
        "entry": model.to_json(),
        "target": manifest["target"],
        "target_description": dict(manifest["target_description"]),
        "preset": settings.preset,
        "trials": settings.trials,
        "shared": settings.shared,
        "seed": settings.seed,
        "created_at": utc_now(),
        "inputs": [info.to_json() for info in imported.inputs],
        "outputs": [info.to_json() for info in imported.outputs],
        "coverage": coverage(matches),
        "tasks": [match.to_json() for match in matches],
        "versions": software_versions(),
    }


def _compile_for_accelerator(
    model: ModelSpec,
    imported: Imported,
    matches: list[Match],
    receipts: Mapping[str, Mapping[str, Any]],
    target: VtaTarget,
    made: Path,
) -> tuple[list[Match], dict[str, Any]]:
    """Writes streams and the host's library; returns the layers as they are built, and what is said of the hardware."""
    from anole.compile.vta.common_geometry import choose_geometry
    from anole.compile.vta.compiler import compile_for_accelerator

    chosen = choose_geometry(target, matches, receipts)
    return chosen.matches, {"accelerator": compile_for_accelerator(model, imported, target, chosen, made)}


def _compile(
    model: ModelSpec, imported: Imported, layers: Sequence[Layer], matches: list[Match], target: Device, made: Path
) -> tuple[list[Match], dict[str, Any]]:
    """Writes the compiled network; returns the tasks as they are built, what it runs on, and its kernels."""
    import tvm

    from anole.compile.kernels import describe_kernels
    from anole.compile.lower import Choice, lower
    from anole.compile.memory_plan import MemoryPlan

    choices = {
        match.task.workload: Choice(target.template(match.task.workload), match.config)
        for match in matches
        if match.config is not None
    }
    memory = MemoryPlan()
    try:
        lowered, failures = lower(imported.module, choices, target.schedule_default)
        options = tvm.transform.PassContext(config=dict(target.compiler_options), instruments=[memory])
        with target.compiler_target() as compiler_target, options:
            executable = tvm.compile(lowered, compiler_target, tir_pipeline=target.compiler_pipeline())
    except Exception as error:
        raise BuildError(f"model {model.name}: TVM cannot compile it: {cause(error)}") from error
    unschedulable = {
        workload: f"its template could not schedule it in this network: {reason}"
        for workload, reason in failures.items()
    }
    write_library(made, executable)
    built = [
        match.untuned(unschedulable[match.task.workload]) if match.task.workload in unschedulable else match
        for match in matches
    ]
    task_keys = {match.task.workload: match.task.key for match in matches}
    kernels = [kernel.to_json(task_keys) for kernel in describe_kernels(lowered, layers)]
    parts = {"runs_on": target.runs_on, "threads": target.threads, "memory": memory.to_json(), "kernels": kernels}
    return built, parts
