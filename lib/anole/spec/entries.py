"""The entries of models.yaml as frozen dataclasses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from anole.targets.rpc.address import Remote


@dataclass(frozen=True)
class ModelSpec:
    """A network to be tuned.

    Attributes:
        source: ``torchvision:<name>``, ``torch:<module>:<factory>`` or ``onnx:<path>``.
        inputs: name of each input and its shape, in the order of the model's arguments.
        dtypes: of the inputs that are not float32.
        calibration: samples of the inputs, ``.npy`` or ``.npz``, for targets of whole numbers; random ones when None.
    """

    name: str
    source: str
    inputs: Mapping[str, tuple[int, ...]] = field(default_factory=dict, hash=False)
    calibration: str | None = None
    dtypes: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def scheme(self) -> str:
        """How the source is loaded: torchvision, torch or onnx."""
        return self.source.partition(":")[0]

    @property
    def location(self) -> str:
        """What follows the scheme: a torchvision name, ``module:factory`` or a path."""
        return self.source.partition(":")[2]

    def to_json(self) -> dict[str, Any]:
        """Returns the plain entry of models.yaml, without the name."""
        inputs: dict[str, Any] = {name: list(shape) for name, shape in self.inputs.items()}
        inputs |= {name: {"shape": inputs[name], "dtype": dtype} for name, dtype in self.dtypes.items()}
        plain = {"source": self.source, "inputs": inputs}
        return plain if self.calibration is None else {**plain, "calibration": self.calibration}

    @classmethod
    def from_json(cls, name: str, entry: Mapping[str, Any]) -> Self:
        """Returns the model of an entry that `to_json` made plain."""
        given = entry.get("inputs", {})
        typed = {key: each for key, each in given.items() if isinstance(each, Mapping)}
        inputs = {key: tuple(typed[key]["shape"] if key in typed else each) for key, each in given.items()}
        dtypes = {key: each["dtype"] for key, each in typed.items()}
        return cls(name, entry["source"], inputs, entry.get("calibration"), dtypes)


@dataclass(frozen=True)
class TargetSpec:
    """Hardware to tune for.

    Attributes:
        settings: what was set beside the kind; `anole.targets.kind.Kind.describe` detects the rest.
        required: whether it is a mistake when the hardware is not here; else its builds are skipped.
        remote: where candidates run, unless on this machine; not a part of what the target is.
    """

    name: str
    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    file: str = "models.yaml"
    required: bool = True
    remote: Remote | None = None


@dataclass(frozen=True)
class BuildSpec:
    """A model to compile for a target.

    Attributes:
        tuning: the preset and every override of the tuner, in plain values.
        trials: how many configs are measured: for each task or, where the budget is shared, for all together.
        shared: whether the model's tasks share one budget (``total_trials``).
        seed: where the tuner's randomness comes from.
        path: where the build stands in the file.
        refine: how many candidates of each task are tried within the network; with 0 none are.
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


@dataclass(frozen=True)
class Spec:
    """All of models.yaml.

    Attributes:
        tuning: the tuner of builds that say nothing of their own.
    """

    models: Mapping[str, ModelSpec]
    targets: Mapping[str, TargetSpec]
    builds: Mapping[str, BuildSpec]
    tuning: Mapping[str, Any]
    file: str = "models.yaml"
