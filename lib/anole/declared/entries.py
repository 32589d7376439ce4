"""The entries of models.yaml as frozen dataclasses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from anole.targets.rpc.address import Remote


@dataclass(frozen=True)
class ModelSpec:
    """A network to tune.

    Attributes:
        source: ``torchvision:<name>``, ``torch:<module>:<factory>`` or ``onnx:<path>``.
        inputs: the shape of each input by name, in the order of the model's arguments.
        dtypes: the types of the inputs that are not float32, by name.
        calibration: input samples for integer targets, ``.npy`` or ``.npz``; None for random samples.
        dims: the sizes of an ONNX file's dynamic dimensions, by their name in the file.
        outputs: the values of an ONNX file to compute instead of its outputs; none for those of the file.
        values: the inputs of an ONNX file that always have the same value, and are no inputs of the build: numbers or
            nested lists, by name.
    """

    name: str
    source: str
    inputs: Mapping[str, tuple[int, ...]] = field(default_factory=dict, hash=False)
    calibration: str | None = None
    dtypes: Mapping[str, str] = field(default_factory=dict, hash=False)
    dims: Mapping[str, int] = field(default_factory=dict, hash=False)
    outputs: tuple[str, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @property
    def scheme(self) -> str:
        """The kind of source: torchvision, torch or onnx."""
        return self.source.partition(":")[0]

    @property
    def location(self) -> str:
        """The source without the scheme: a torchvision name, ``module:factory`` or a path."""
        return self.source.partition(":")[2]

    def to_json(self) -> dict[str, Any]:
        """Returns the entry of models.yaml as plain JSON values, without the name."""
        inputs: dict[str, Any] = {name: list(shape) for name, shape in self.inputs.items()}
        inputs |= {name: {"shape": inputs[name], "dtype": dtype} for name, dtype in self.dtypes.items()}
        inputs |= {name: {"value": value} for name, value in self.values.items()}
        # Manifests hold the entry: a key that is not given leaves it as it was before there was such a key.
        optional = {"calibration": self.calibration, "dims": dict(self.dims), "outputs": list(self.outputs)}
        return {"source": self.source, "inputs": inputs, **{key: value for key, value in optional.items() if value}}

    @classmethod
    def from_json(cls, name: str, entry: Mapping[str, Any]) -> Self:
        """Returns the model of an entry that `to_json` made."""
        given = entry.get("inputs", {})
        detailed = {key: each for key, each in given.items() if isinstance(each, Mapping)}
        shapes = {key: detailed[key].get("shape") if key in detailed else each for key, each in given.items()}
        return cls(
            name,
            entry["source"],
            {key: tuple(shape) for key, shape in shapes.items() if shape is not None},
            entry.get("calibration"),
            {key: each["dtype"] for key, each in detailed.items() if "dtype" in each},
            entry.get("dims", {}),
            tuple(entry.get("outputs", ())),
            {key: each["value"] for key, each in detailed.items() if "value" in each},
        )


@dataclass(frozen=True)
class TargetSpec:
    """Hardware to tune for.

    Attributes:
        settings: the settings given besides the kind; `anole.targets.kind.Kind.describe` detects the rest.
        required: whether absent hardware is an error; if false, the target's builds are skipped instead.
        remote: the remote device that runs candidates, if it is not this machine; not part of the target's identity.
        nodes: what a cluster's scheduler needs to choose a node that is the target; empty for this machine. Not part of
            the target's identity.
    """

    name: str
    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    file: str = "models.yaml"
    required: bool = True
    remote: Remote | None = None
    nodes: Mapping[str, str | int] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class BuildSpec:
    """A model to compile for a target.

    Attributes:
        tuning: the tuner's preset and all overrides, in plain values.
        trials: number of configs to measure: for each task or, if the budget is shared, for all tasks together.
        shared: whether the model's tasks share one budget (``total_trials`` or ``total_seconds``).
        seconds: how long tasks that share a budget are tuned together at most (``total_seconds``).
        refine: number of candidates of each task to try within the network; 0 disables refining.
    """

    name: str
    model: str
    target: str
    tuning: Mapping[str, Any] = field(hash=False)
    trials: int
    seed: int
    path: str = ""
    shared: bool = False
    refine: int = 0
    seconds: int | None = None


EVERY_PROGRAM = 1_000_000
"""The budget of a search that tries all programs: more trials than any layer has programs."""


@dataclass(frozen=True)
class AcceleratorSpec:
    """An accelerator to choose for several networks.

    Attributes:
        models: the weight of each network's latency and energy, by its name.
        targets: the targets whose hardware is searched, together.
        settings: those of the kind of target.
    """

    name: str
    models: Mapping[str, float] = field(hash=False)
    targets: tuple[str, ...]
    settings: Mapping[str, Any] = field(hash=False)
    path: str = ""

    @property
    def searches(self) -> tuple[BuildSpec, ...]:
        """What is tuned for it: each network for each target, by all programs."""
        return tuple(
            BuildSpec(
                f"{self.name}: {model} for {target}",
                model,
                target,
                {"preset": "exhaustive"},
                EVERY_PROGRAM,
                0,
                self.path,
            )
            for model in self.models
            for target in self.targets
        )


@dataclass(frozen=True)
class Spec:
    """The whole content of models.yaml; the tuning is that of builds that do not set their own."""

    models: Mapping[str, ModelSpec]
    targets: Mapping[str, TargetSpec]
    builds: Mapping[str, BuildSpec]
    tuning: Mapping[str, Any]
    file: str = "models.yaml"
    accelerators: Mapping[str, AcceleratorSpec] = field(default_factory=dict)

    @property
    def tuned(self) -> tuple[BuildSpec, ...]:
        """All that tasks are tuned for: the builds, and what accelerators are explored by."""
        explored = (search for accelerator in self.accelerators.values() for search in accelerator.searches)
        return (*self.builds.values(), *explored)
