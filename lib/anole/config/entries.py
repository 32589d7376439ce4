"""The entries of models.yaml as frozen dataclasses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from anole.ir.ranges import SizeRange
from anole.targets.rpc.address import Remote


@dataclass(frozen=True)
class ModelSpec:
    """A network to tune.

    Attributes:
        source: ``torchvision:<name>``, ``torch:<module>:<factory>`` or ``onnx:<path>``.
        inputs: the shape of each input by name, in the order of the model's arguments.
        dtypes: the types of the inputs that are not float32, by name.
        samples: file of samples of the inputs, ``.npy`` or ``.npz``, to quantize and to check builds with.
        dims: the sizes of an ONNX file's dynamic dimensions, by their name in the file.
        outputs: the names of values to compute instead of an ONNX file's outputs; empty for the file's outputs.
        values: constant values, by name, for inputs of an ONNX file that become constants: numbers or nested lists.
        ranges: the sizes that a build serves, by the name of the dimension. `inputs` and `dims` hold the typical sizes.
        named: for inputs with a range, the range name of each extent; None for fixed extents.
    """

    name: str
    source: str
    inputs: Mapping[str, tuple[int, ...]] = field(default_factory=dict, hash=False)
    samples: str | None = None
    dtypes: Mapping[str, str] = field(default_factory=dict, hash=False)
    dims: Mapping[str, int] = field(default_factory=dict, hash=False)
    outputs: tuple[str, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict, hash=False)
    ranges: Mapping[str, SizeRange] = field(default_factory=dict, hash=False)
    named: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict, hash=False)

    @property
    def scheme(self) -> str:
        """The kind of source: torchvision, torch or onnx."""
        return self.source.partition(":")[0]

    @property
    def location(self) -> str:
        """The source without the scheme: a torchvision name, ``module:factory`` or a path."""
        return self.source.partition(":")[2]

    @property
    def sizes(self) -> dict[str, int]:
        """The typical size of each range."""
        return {name: size_range.typical for name, size_range in self.ranges.items()}

    def at(self, sizes: Mapping[str, int]) -> ModelSpec:
        """Return the model with inputs of the given sizes within its ranges."""
        inputs = {
            name: tuple(sizes.get(symbol or "", extent) for symbol, extent in zip(self.named[name], shape, strict=True))
            if name in self.named
            else shape
            for name, shape in self.inputs.items()
        }
        dims = {name: sizes.get(name, size) for name, size in self.dims.items()}
        return replace(self, inputs=inputs, dims=dims)

    def to_json(self) -> dict[str, Any]:
        """Return the entry of models.yaml as plain JSON values, without the name.

        Inputs are a list of pairs in the order of the model's arguments, because JSON objects have no order.
        """
        inputs: dict[str, Any] = {name: list(shape) for name, shape in self.inputs.items()}
        for name, symbols in self.named.items():
            inputs[name] = [
                extent if symbol is None else {symbol: str(self.ranges[symbol])}
                for symbol, extent in zip(symbols, inputs[name], strict=True)
            ]
        inputs |= {name: {"shape": inputs[name], "dtype": dtype} for name, dtype in self.dtypes.items()}
        inputs |= {name: {"value": value} for name, value in self.values.items()}
        dims = {name: str(self.ranges[name]) if name in self.ranges else size for name, size in self.dims.items()}
        # Manifests hold the entry. Omitting unused keys keeps manifests valid that were written before a key existed.
        optional = {"samples": self.samples, "dims": dims, "outputs": list(self.outputs)}
        pairs = [list(pair) for pair in inputs.items()]
        return {"source": self.source, "inputs": pairs, **{key: value for key, value in optional.items() if value}}

    @classmethod
    def from_json(cls, name: str, entry: Mapping[str, Any]) -> Self:
        """Return the model of an entry from `to_json`, or from models.yaml, where inputs are an object."""
        inputs = dict(entry.get("inputs", ()))
        detailed = {key: value for key, value in inputs.items() if isinstance(value, Mapping)}
        shapes = {key: detailed[key].get("shape") if key in detailed else value for key, value in inputs.items()}
        collector = RangeCollector()
        return cls(
            name,
            entry["source"],
            {key: collector.shape(key, shape) for key, shape in shapes.items() if shape is not None},
            entry.get("samples", entry.get("calibration")),
            {key: detail["dtype"] for key, detail in detailed.items() if "dtype" in detail},
            {key: collector.size(key, size) for key, size in entry.get("dims", {}).items()},
            tuple(entry.get("outputs", ())),
            {key: detail["value"] for key, detail in detailed.items() if "value" in detail},
            collector.ranges,
            collector.named,
        )


class RangeCollector:
    """Collects the ranges of a model while its shapes are read.

    Attributes:
        ranges, named: see `ModelSpec`.
    """

    def __init__(self) -> None:
        self.ranges: dict[str, SizeRange] = {}
        self.named: dict[str, tuple[str | None, ...]] = {}

    def shape(self, name: str, extents: Sequence[Any]) -> tuple[int, ...]:
        """Return an input's shape with typical sizes; an extent may be a named range, ``{batch: 1..16}``."""
        pairs = [next(iter(extent.items())) if isinstance(extent, Mapping) else (None, extent) for extent in extents]
        shape = tuple(extent if symbol is None else self.size(symbol, extent) for symbol, extent in pairs)
        if any(symbol is not None for symbol, _ in pairs):
            self.named[name] = tuple(symbol for symbol, _ in pairs)
        return shape

    def size(self, symbol: str, value: int | str) -> int:
        """Return a size, or the typical size of a range; raise ValueError if a range is malformed or inconsistent."""
        if isinstance(value, int):
            return value
        size_range = SizeRange.parse(value)
        if self.ranges.setdefault(symbol, size_range) != size_range:
            raise ValueError(f"found {value} for {symbol}, but {self.ranges[symbol]} elsewhere; use one range")
        return size_range.typical


@dataclass(frozen=True)
class TargetSpec:
    """Hardware to tune for.

    Attributes:
        settings: the entry's settings of its kind; `anole.targets.kind.Kind.describe` detects the others.
        required: if false, the target's builds are skipped if its hardware is missing.
        remote: the remote device that runs candidates; None for this machine. Not part of the target's identity.
        nodes: the resources by which a cluster's scheduler chooses a node; empty for this machine. Not part of the
            target's identity.
    """

    name: str
    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    file: str = "models.yaml"
    required: bool = True
    remote: Remote | None = None
    nodes: Mapping[str, str | int] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Budget:
    """The tuning budget.

    Attributes:
        trials: number of configs to measure per task, or for all tasks of a model if `shared`; None if only `seconds`
            limits the search or, without `seconds`, if all programs are tried.
        shared: whether a model's tasks share the budget (``total_trials`` or ``total_seconds``).
        seconds: time limit of all tasks together (``total_seconds``).
    """

    trials: int | None
    shared: bool = False
    seconds: int | None = None

    @property
    def max_trials(self) -> int:
        """The number of trials for commands and file names; a limit that searches hardly reach if `trials` is None."""
        unlimited = 1_000_000 if self.seconds is None else 10_000
        return unlimited if self.trials is None else self.trials


EXHAUSTIVE = Budget(None)
"""The budget of a search that tries all programs."""


@dataclass(frozen=True)
class BuildSpec:
    """A model to compile for a target.

    Attributes:
        tuning: the tuner's preset and all overrides, in plain values.
        refine: number of candidates per task to try within the network; 0 disables refining.
    """

    name: str
    model: str
    target: str
    tuning: Mapping[str, Any] = field(hash=False)
    budget: Budget
    seed: int
    path: str = ""
    refine: int = 0


@dataclass(frozen=True)
class AcceleratorOrder:
    """The inputs of an accelerator's Pareto front, except the trials.

    Attributes:
        targets: the description of each target whose hardware is searched, by target name.
        models, settings: see `AcceleratorSpec`.
    """

    models: Mapping[str, float] = field(hash=False)
    targets: Mapping[str, Any] = field(hash=False)
    settings: Mapping[str, Any] = field(hash=False)


@dataclass(frozen=True)
class AcceleratorSpec:
    """An accelerator to choose for several networks.

    Attributes:
        models: the weight of each network's latency and energy, by network name.
        targets: the targets whose hardware is searched, together.
        settings: the entry's other settings, parsed by the kind of target.
    """

    name: str
    models: Mapping[str, float] = field(hash=False)
    targets: tuple[str, ...]
    settings: Mapping[str, Any] = field(hash=False)
    path: str = ""

    @property
    def searches(self) -> tuple[BuildSpec, ...]:
        """The exhaustive searches that the accelerator requires, one per network and target."""
        tuning = {"preset": "exhaustive"}
        return tuple(
            BuildSpec(f"{self.name}: {model} for {target}", model, target, tuning, EXHAUSTIVE, 0, self.path)
            for model in self.models
            for target in self.targets
        )


@dataclass(frozen=True)
class Spec:
    """The content of models.yaml; `tuning` holds the default tuner settings of builds."""

    models: Mapping[str, ModelSpec]
    targets: Mapping[str, TargetSpec]
    builds: Mapping[str, BuildSpec]
    tuning: Mapping[str, Any]
    file: str = "models.yaml"
    accelerators: Mapping[str, AcceleratorSpec] = field(default_factory=dict)

    @property
    def tuned(self) -> tuple[BuildSpec, ...]:
        """All builds and all searches for accelerators: the entries whose tasks are tuned."""
        searches = (search for accelerator in self.accelerators.values() for search in accelerator.searches)
        return (*self.builds.values(), *searches)
