"""Decide by the target's kind and settings which models are quantized before they are extracted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anole.config.entries import ModelSpec, Spec
from anole.config.reading import load_spec
from anole.documents import layout
from anole.documents.build import Build
from anole.targets import get_kind


def is_quantized(spec: Spec, target: str) -> bool:
    """Whether a target uses the quantized file of a model instead of the model."""
    entry = spec.targets[target]
    return get_kind(entry.kind).quantizes_models(entry.settings)


def model_for_target(spec: Spec, model: str, target: str) -> ModelSpec:
    """Return the entry of a model, or of its quantized file, for a target."""
    entry = spec.models[model]
    if not is_quantized(spec, target):
        return entry
    return ModelSpec(entry.name, f"onnx:{layout.quantized_path(model)}", entry.inputs)


def declared_model(path: Path, build: Build, overrides: Mapping[str, Any] | None = None) -> ModelSpec | None:
    """Return the current entry of a build's model in models.yaml; None without such a file, model or target.

    Raises:
        SpecError: the file has a mistake.
    """
    if not path.exists():
        return None
    spec = load_spec(path, overrides)
    is_declared = build.model in spec.models and build.target in spec.targets
    return model_for_target(spec, build.model, build.target) if is_declared else None
