"""The settings of a CPU target in models.yaml, and the description made from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from anole.errors import TargetError
from anole.host.machine import available_cores, available_threads
from anole.host.processor import OTHER_TYPES, features_of, known_processors, processor
from anole.node import Node
from anole.record import Config
from anole.targets.base import MAX_RELATIVE_ERROR, WINOGRAD
from anole.targets.cpu.device.precision import (
    BF16,
    BYTE_FEATURES,
    DTYPES,
    FLOAT32,
    INT8,
    NEEDS,
    STORED_WEIGHTS,
    WHOLE,
    lacks,
    precisions_of,
)
from anole.targets.kind import CONSTRAINED, Inventory, Kind, Rounding, described_space, plain_values, read_space
from anole.targets.rpc.address import Remote
from anole.text_format import counted

if TYPE_CHECKING:
    from anole.targets.cpu.target import CpuTarget

_KEYS = ("mcpu", "threads", "model", "max_relative_error", "exact", "space", "precision", "weights")

_RELATIVE_ERRORS = (1e-5, 1e-2)
"""The allowed range of `max_relative_error`; not every direct sum in float32 is below 1e-6."""


def read_settings(node: Node, remote: Remote | None) -> dict[str, Any]:
    """Return the settings of an entry of ``targets``, see `Kind.read`; a remote processor must be fully described."""
    entry = node.mapping()
    if "mcpu" in entry:
        entry["mcpu"].choice(known_processors(), "a processor that LLVM knows on this machine")
    if "model" in entry:
        entry["model"].text()
    if "threads" in entry:
        entry["threads"].whole(least=1)
    if "exact" in entry:
        entry["exact"].flag()
    if "precision" in entry:
        entry["precision"].choice(DTYPES, "a precision")
    if "weights" in entry:
        entry["weights"].choice(STORED_WEIGHTS, "a type of weights")
    read_space(entry)
    settings = plain_values(node, _KEYS)
    if "max_relative_error" in entry:
        settings["max_relative_error"] = entry["max_relative_error"].number(*_RELATIVE_ERRORS)
    if remote is not None:
        return {**settings, "model": _model_elsewhere(node, remote)}
    if "model" in entry and "nodes" not in entry:
        raise entry["model"].error("is the name of a processor elsewhere; give `measure` or `nodes`, or leave it out")
    return settings


def _model_elsewhere(node: Node, remote: Remote) -> str:
    """Return the name of a remote processor, and check that the entry describes it fully."""
    entry = node.mapping()
    for name in ("mcpu", "threads"):
        if name not in entry:
            raise node.error(f"has no `{name}`; what is measured elsewhere (`measure`) cannot be detected")
    model = entry["model"].text() if "model" in entry else remote.key
    if model is None:
        raise node.error("has no `model`; a server without a `key` does not name its processor")
    return model


def describe_cpu(
    mcpu: str | None = None,
    threads: int | None = None,
    model: str | None = None,
    max_relative_error: float = MAX_RELATIVE_ERROR,
    exact: bool = False,
    space: str = CONSTRAINED,
    precision: str = FLOAT32,
    weights: str | None = None,
) -> dict[str, Any]:
    """Return the description of a processor as a target; it enters the keys of tasks.

    Args:
        mcpu: LLVM's name of the processor to compile for, without other features; detected with all features if None.
        threads: number of threads that run a kernel; all available cores if None.
        model: name of another machine's processor, which disables detection; None for this machine's.
        max_relative_error: largest relative L2 error of a kernel's result; described only if it is not the default.
        exact: whether only algorithms are allowed that compute the operator exactly as defined; likewise.
        space: ``constrained``, or ``open`` for spaces without constraints; likewise.
        precision: of what convolutions and dense layers multiply, ``float32``, ``bf16``, or ``int8``, which stands for
            quantized networks; likewise.
        weights: type to which the weights of dense layers of few rows are rounded, ``int8`` or ``int4``; likewise.

    Raises:
        TargetError: this machine lacks the processor's features or the threads, or the processor lacks the precision.
    """
    if model is None or mcpu is None or threads is None:
        described = _this_processor(mcpu, threads)
    else:
        described = {"mcpu": mcpu, "model": model, "features": features_of(mcpu), "threads": threads}
    if max_relative_error != MAX_RELATIVE_ERROR:
        described["max_relative_error"] = max_relative_error
    if exact:
        described["exact"] = True
    if precision != FLOAT32:
        if lacking := lacks(precision, described["features"]):
            raise TargetError(f"precision {precision} needs {', '.join(lacking)}, which {described['model']} lacks")
        described["precision"] = precision
    if weights is not None:
        described["weights"] = weights
    return {"kind": "cpu", **described, **described_space(space)}


def _this_processor(mcpu: str | None, threads: int | None) -> dict[str, Any]:
    host = processor()
    if mcpu is not None and (lacking := host.lacks(mcpu)):
        raise TargetError(f"mcpu {mcpu} needs {', '.join(lacking)}, which this machine's {host.name} lacks")
    if threads is not None and threads > available_threads():
        raise TargetError(f"found threads: {threads}; this process may use {available_threads()} processors")
    features, threads = host.features if mcpu is None else features_of(mcpu), threads or available_cores()
    return {"mcpu": mcpu or host.mcpu, "model": host.name, "features": features, "threads": threads}


def _target(description: Mapping[str, Any]) -> CpuTarget:
    from anole.targets.cpu.target import CpuTarget

    return CpuTarget(description)


def _inventory() -> Inventory:
    from anole.targets.cpu.device.vector_unit import VectorUnit

    description = describe_cpu()
    features: list[str] = description["features"]
    precisions = precisions_of(features)
    unneeded = OTHER_TYPES.difference(BYTE_FEATURES, *(each for precision in precisions for each in NEEDS[precision]))
    used = [feature for feature in features if feature not in unneeded]
    unused = [feature for feature in features if feature in unneeded]
    lanes = VectorUnit.of(description).lanes
    facts = {"compiled for": f"{description['mcpu']} with {' '.join(used)}, in vectors of {lanes} floats"}
    facts["precisions"] = " or ".join(precisions)
    if unused:
        facts["not used"] = f"{' '.join(unused)}: kernels compute in {facts['precisions']}"
    facts["threads"] = str(description["threads"])
    counts = sorted({1, int(description["threads"])})
    return Inventory(facts, {counted(n, "thread"): describe_cpu(threads=n) for n in counts})


def _rounding(description: Mapping[str, Any]) -> Rounding | None:
    # With int8, the model itself is a quantized one.
    dtype = DTYPES[BF16] if description.get("precision") == BF16 else None
    return Rounding(dtype, "weights" in description) if dtype or "weights" in description else None


def _remedy(configs: Sequence[Config]) -> str:
    if not any(config.get("algorithm") == WINOGRAD for config in configs):
        return ""
    return "; with `exact: true`, a target's convolutions are computed without Winograd's method, which rounds more"


KIND = Kind(
    _KEYS,
    read_settings,
    describe_cpu,
    _target,
    detected=("mcpu", "threads", "model"),
    measurable_elsewhere=True,
    observable=True,
    inventory=_inventory,
    remedy=_remedy,
    finer="anole.targets.shared.output_tiles:finer_tiles",
    rounding=_rounding,
    exporter="anole.export.stage:export_build",
    multiplies={WHOLE: INT8, DTYPES[BF16]: BF16},
    quantizes_models=lambda settings: settings.get("precision") == INT8,
    serves_ranges=True,
)
