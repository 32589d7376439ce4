"""Builds: a network compiled with the best configs known, as a folder that stands by itself."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self, cast

from anole.compile.folder import new_folder, write_description, write_library
from anole.compile.matching import Match, coverage, match_tasks, warn_of_untuned
from anole.documents.build import Accelerator, Build, BuiltKernel
from anole.documents.manifest import Manifest
from anole.documents.order import Order
from anole.documents.receipt import Receipts
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

    @classmethod
    def of(cls, name: str, order: Order) -> Self:
        """Returns the settings of a build that an order asks for."""
        return cls(name, order.preset, order.trials, order.shared, order.seed)


@dataclass(frozen=True)
class Compiled:
    """A network as it was compiled for its target.

    Attributes:
        matches: its tasks, with the configs that they really have.
        runs_on, threads, memory, kernels, accelerator: see `anole.documents.build.Build`.
    """

    matches: list[Match]
    runs_on: str | None = None
    threads: int | None = None
    memory: Mapping[str, int] | None = field(default=None, hash=False)
    kernels: tuple[BuiltKernel, ...] | None = None
    accelerator: Accelerator | None = None


def compile_build(
    model: ModelSpec,
    manifest: Manifest,
    settings: BuildSettings,
    receipts: Receipts,
    folder: Path,
    imported: Imported | None = None,
) -> Build:
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
        The build's description.

    Raises:
        ExtractError: the network cannot be loaded.
        BuildError: it is not what was extracted, it cannot be compiled, or the folder cannot be written.
    """
    target = get_target(manifest.origin.target_description)
    imported = imported if imported is not None else load_model(model)
    from anole.extract.graph import find_layers

    layers = find_layers(imported)
    workloads = [layer.workload for layer in layers]
    taken = [workload for position, workload in enumerate(workloads) if target.takes(workload, position)]
    matches = match_tasks(manifest, taken, receipts, target)
    with new_folder(folder) as made:
        if isinstance(target, VtaTarget):
            compiled = _compile_for_accelerator(model, imported, matches, receipts, target, made)
        else:
            compiled = _compile(model, imported, layers, matches, cast(Device, target), made)
        build = _describe(model, imported, manifest, settings, compiled)
        warn_of_untuned(settings.name, compiled.matches)
        _log.info("%s: %.1f %% of the work is tuned", settings.name, 100 * build.coverage.share)
        size_bytes = sum(path.stat().st_size for path in made.rglob("*") if path.is_file())
        build = replace(build, size_bytes=size_bytes)
        write_description(made, build)
    return build


def _describe(
    model: ModelSpec, imported: Imported, manifest: Manifest, settings: BuildSettings, compiled: Compiled
) -> Build:
    return Build(
        name=settings.name,
        model=model.name,
        entry=model.to_json(),
        target=manifest.target,
        target_description=manifest.origin.target_description,
        preset=settings.preset,
        trials=settings.trials,
        shared=settings.shared,
        seed=settings.seed,
        created_at=utc_now(),
        inputs=imported.inputs,
        outputs=imported.outputs,
        coverage=coverage(compiled.matches),
        tasks=tuple(match.built for match in compiled.matches),
        versions=software_versions(),
        runs_on=compiled.runs_on,
        threads=compiled.threads,
        memory=compiled.memory,
        kernels=compiled.kernels,
        accelerator=compiled.accelerator,
    )


def _compile_for_accelerator(
    model: ModelSpec,
    imported: Imported,
    matches: list[Match],
    receipts: Receipts,
    target: VtaTarget,
    made: Path,
) -> Compiled:
    """Writes the streams and the host's library."""
    from anole.compile.vta.common_geometry import choose_geometry
    from anole.compile.vta.compiler import compile_for_accelerator

    chosen = choose_geometry(target, matches, receipts)
    accelerator = compile_for_accelerator(model, imported, target, chosen, made)
    return Compiled(chosen.matches, accelerator=accelerator)


def _compile(
    model: ModelSpec, imported: Imported, layers: Sequence[Layer], matches: list[Match], target: Device, made: Path
) -> Compiled:
    """Writes the compiled network."""
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
    kernels = tuple(kernel.built(task_keys) for kernel in describe_kernels(lowered, layers))
    return Compiled(built, target.runs_on, target.threads, memory.to_json(), kernels)
