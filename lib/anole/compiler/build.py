"""Compile a network with the best known configs into a self-contained folder, the build."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from anole.compiler.folder import replace_folder, write_description
from anole.compiler.matching import coverage, match_tasks, warn_of_float32_layers, warn_of_untuned
from anole.compiler.network_compiler import Compiled, MatchedNetwork, NetworkCompiler
from anole.compiler.rounding import RoundingCheck, coarse_layers, with_finer_configs
from anole.config.entries import ModelSpec
from anole.documents.build import Build, digests
from anole.documents.manifest import Manifest, Order
from anole.documents.receipt import Receipts
from anole.extract.load import load_model
from anole.host.machine import software_versions
from anole.record import utc_now
from anole.targets import get_target
from anole.targets.base import Target, named_object

if TYPE_CHECKING:
    from anole.extract.imported import Imported

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BuildSettings:
    """A build's name and how its tasks were tuned; see `Order`."""

    name: str
    preset: str
    trials: int
    shared: bool
    seed: int
    lock: str | None = None

    @classmethod
    def of(cls, name: str, order: Order) -> Self:
        """Return the settings of the build of an order."""
        return cls(name, order.preset, order.trials, order.shared, order.seed, order.lock)


def compile_build(
    model: ModelSpec,
    manifest: Manifest,
    settings: BuildSettings,
    receipts: Receipts,
    folder: Path,
    imported: Imported | None = None,
    has_large_rounding_error: RoundingCheck | None = None,
) -> Build:
    """Compile a network into a folder, which is written completely or not at all.

    An existing folder is replaced. A task without a receipt gets the template's default config and a warning. If
    `imported` is None, the model is imported; otherwise, `imported` is not modified. A build that
    `has_large_rounding_error` rejects is compiled again with finer configs, such as smaller Winograd tiles.

    Raises:
        ExtractError: the network cannot be loaded.
        BuildError: the network differs from its manifest or cannot be compiled, the folder cannot be written, or a
            locked config is not in its space.
    """
    target = get_target(manifest.origin.target_description)
    network = match_network(model, manifest, receipts, target, imported)
    with replace_folder(folder) as scratch:
        build, compiled = _compile(network, manifest, settings, target, scratch)
        if (
            (layers := coarse_layers(network, target))
            and has_large_rounding_error is not None
            and has_large_rounding_error(scratch)
        ):
            _log.info("%s: too inaccurate; compiling again with finer configs of %s", settings.name, ", ".join(layers))
            for path in scratch.iterdir():
                path.unlink()
            build, compiled = _compile(with_finer_configs(network, target), manifest, settings, target, scratch)
        warn_of_float32_layers(settings.name, compiled.matches)
        warn_of_untuned(settings.name, compiled.matches, settings.trials)
        share = f"{100 * build.coverage.share:.1f} % of the work is tuned"
        _log.info("%s: %s", settings.name, share if settings.trials else "all layers have default configs")
    return build


def _compile(
    network: MatchedNetwork, manifest: Manifest, settings: BuildSettings, target: Target, folder: Path
) -> tuple[Build, Compiled]:
    """Compile a network with its configs into an empty folder."""
    compiler: NetworkCompiler = named_object(target.networks.compiler)
    compiled = compiler(network, target, folder)
    build = _describe(network.model, network.imported, manifest, settings, compiled)
    size_bytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    build = replace(build, size_bytes=size_bytes, sha256=digests(folder))
    write_description(folder, build, compiled.cpp_runtime)
    return build, compiled


def match_network(
    model: ModelSpec, manifest: Manifest, receipts: Receipts, target: Target, imported: Imported | None = None
) -> MatchedNetwork:
    """Match each task of a network with its best known config; arguments and errors are as for `compile_build`.

    A network with size ranges is matched by the tasks of its typical sizes.
    """
    imported = imported if imported is not None else load_model(model)
    from anole.extract.graph import find_layers, for_target

    network = for_target(imported, target)
    layers = find_layers(network)
    workloads = [layer.workload for layer in layers]
    supported = [workload for position, workload in enumerate(workloads) if target.takes(workload, position)]
    matches = match_tasks(manifest, supported, receipts, target)
    return MatchedNetwork(model, network, layers, matches, receipts)


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
        lock=settings.lock,
        ranges=dict(model.ranges) or None,
    )
