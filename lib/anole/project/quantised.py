"""Which models are quantised before they are extracted: those of builds for targets of int8."""

from __future__ import annotations

from anole.declared.entries import ModelSpec, Spec
from anole.documents import layout

INT8 = "int8"
"""The precision of a target whose models are quantised."""


def is_quantised(spec: Spec, target: str) -> bool:
    """Returns whether a target takes the quantised file of a model instead of the model."""
    return spec.targets[target].settings.get("precision") == INT8


def model_on(spec: Spec, model: str, target: str) -> ModelSpec:
    """Returns a model as a target takes it."""
    own = spec.models[model]
    if not is_quantised(spec, target):
        return own
    return ModelSpec(own.name, f"onnx:{layout.quantised_path(model)}", own.inputs)
