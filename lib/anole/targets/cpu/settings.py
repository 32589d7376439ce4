"""The settings of a CPU target in models.yaml, and the description made from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from anole.errors import TargetError
from anole.host.machine import available_cores, available_threads
from anole.host.processor import LOW_PRECISION_FEATURES, features_of, known_processors, processor
from anole.node import Node
from anole.record import Config
from anole.targets.base import MAX_RELATIVE_ERROR, WINOGRAD
from anole.targets.cpu.device.precision import (
    BF16,
    DTYPES,
    FEATURES_FOR_8_BITS,
    FLOAT32,
    INT8,
    REQUIRED_FEATURES,
    STORED_WEIGHTS,
    UINT8,
    missing_features,
    precisions_of,
)
from anole.targets.kind import CONSTRAINED, Inventory, Kind, Rounding, check_space, described_space, plain_values
from anole.targets.rpc.address import Remote
from anole.text_format import pluralize

if TYPE_CHECKING:
    from anole.targets.cpu.target import CpuTarget

_KEYS = ("mcpu", "threads", "model", "max_relative_error", "exact", "space", "precision", "weights")

_RELATIVE_ERRORS = (1e-5, 1e-2)
"""The allowed range of `max_relative_error`; even direct sums in float32 may have errors above 1e-6."""


def read_settings(node: Node, remote: Remote | None) -> dict[str, Any]:
    """Read an entry of ``targets``, see `Kind.read`; a remote CPU must be fully described."""
    entry = node.mapping()
    if "mcpu" in entry:
        entry["mcpu"].choice(known_processors(), "a CPU that LLVM knows on this machine")
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
    check_space(entry)
    settings = plain_values(node, _KEYS)
    if "max_relative_error" in entry:
        settings["max_relative_error"] = entry["max_relative_error"].number(*_RELATIVE_ERRORS)
    if remote is not None:
        return {**settings, "model": _remote_model(node, remote)}
    if "model" in entry and "nodes" not in entry:
        raise entry["model"].error("is the name of another machine's CPU; give `measure` or `nodes`, or omit it")
    return settings


def _remote_model(node: Node, remote: Remote) -> str:
    """Return the name of a remote CPU, and check that the entry describes it fully."""
    entry = node.mapping()
    for name in ("mcpu", "threads"):
        if name not in entry:
            raise node.error(f"has no `{name}`; a CPU measured elsewhere (`measure`) cannot be detected")
    model = entry["model"].text() if "model" in entry else remote.key
    if model is None:
        raise node.error("has no `model`; a server without a `key` does not name its CPU")
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
    """Return the description of a CPU as a target; it is part of the keys of tasks, and omits defaults.

    Args:
        mcpu: LLVM's name of the CPU to compile for, with its standard features; None to detect all features.
        threads: number of threads that run a kernel; all available cores if None.
        model: name of another machine's CPU, which disables detection; None for this machine.
        max_relative_error: maximum relative L2 error of a kernel's result.
        exact: whether to allow only algorithms that compute the operator exactly as defined.
        space: ``constrained``, or ``open`` for spaces without constraints.
        precision: of the operands of convolutions and dense layers: ``float32``, ``bf16``, or ``int8`` for quantized
            networks.
        weights: type to which the weights of dense layers with few rows are quantized, ``int8`` or ``int4``.

    Raises:
        TargetError: this machine does not have the CPU's features or the threads, or the CPU does not support the
            precision.
    """
    if model is None or mcpu is None or threads is None:
        description = _describe_local_cpu(mcpu, threads)
    else:
        description = {"mcpu": mcpu, "model": model, "features": features_of(mcpu), "threads": threads}
    if max_relative_error != MAX_RELATIVE_ERROR:
        description["max_relative_error"] = max_relative_error
    if exact:
        description["exact"] = True
    if precision != FLOAT32:
        if missing := missing_features(precision, description["features"]):
            raise TargetError(
                f"precision {precision} requires {', '.join(missing)}, which {description['model']} does not have"
            )
        description["precision"] = precision
    if weights is not None:
        description["weights"] = weights
    return {"kind": "cpu", **description, **described_space(space)}


def _describe_local_cpu(mcpu: str | None, threads: int | None) -> dict[str, Any]:
    host = processor()
    if mcpu is not None and (missing := host.missing_features(mcpu)):
        raise TargetError(f"mcpu {mcpu} requires {', '.join(missing)}, which this machine's {host.name} does not have")
    if threads is not None and threads > available_threads():
        raise TargetError(f"found threads: {threads}; this process may use at most {available_threads()}")
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
    not_needed = LOW_PRECISION_FEATURES.difference(
        FEATURES_FOR_8_BITS, *(required for precision in precisions for required in REQUIRED_FEATURES[precision])
    )
    used = [feature for feature in features if feature not in not_needed]
    unused = [feature for feature in features if feature in not_needed]
    lanes = VectorUnit.of(description).lanes
    facts = {"compiled for": f"{description['mcpu']} with {' '.join(used)}, in vectors of {lanes} floats"}
    facts["precisions"] = " or ".join(precisions)
    if unused:
        facts["not used"] = f"{' '.join(unused)}: kernels compute in {facts['precisions']}"
    facts["threads"] = str(description["threads"])
    counts = sorted({1, int(description["threads"])})
    return Inventory(facts, {pluralize(n, "thread"): describe_cpu(threads=n) for n in counts})


def _rounding(description: Mapping[str, Any]) -> Rounding | None:
    # With int8, the model itself is quantized.
    dtype = DTYPES[BF16] if description.get("precision") == BF16 else None
    return Rounding(dtype, "weights" in description) if dtype or "weights" in description else None


def _rounding_remedy(configs: Sequence[Config]) -> str:
    if not any(config.get("algorithm") == WINOGRAD for config in configs):
        return ""
    return "; with `exact: true`, convolutions are computed without Winograd's method, whose rounding errors are larger"


KIND = Kind(
    _KEYS,
    read_settings,
    describe_cpu,
    _target,
    detected=("mcpu", "threads", "model"),
    measurable_elsewhere=True,
    profilable=True,
    inventory=_inventory,
    rounding_remedy=_rounding_remedy,
    finer_tiles="anole.targets.shared.output_tiles:finer_tiles",
    rounding=_rounding,
    exporter="anole.export.stage:export_build",
    precision_names={UINT8: INT8, DTYPES[BF16]: BF16},
    quantizes_models=lambda settings: settings.get("precision") == INT8,
    serves_ranges=True,
)
