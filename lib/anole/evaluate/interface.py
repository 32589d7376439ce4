"""The check that a build's inputs and outputs match models.yaml and the model's source, in name and order.

References get their inputs by position, so this check precedes any comparison.
"""

from __future__ import annotations

from pathlib import Path

from anole.config.entries import ModelSpec
from anole.documents.build import Build
from anole.errors import DocumentError


def check_interface(folder: Path, build: Build, declared: ModelSpec | None) -> None:
    """Raise DocumentError if a build's model entry differs from models.yaml, or its inputs or outputs from the model's.

    `declared` is the current entry in models.yaml; without it, the build's own entry counts.
    """
    recorded = build.model_spec
    model = recorded if declared is None else declared
    if model != recorded or list(model.inputs) != list(recorded.inputs):
        problem = f"was compiled from an entry of model {build.model} that differs from models.yaml"
        raise DocumentError(folder, problem, "compile")
    inputs, outputs = [info.name for info in build.inputs], [info.name for info in build.outputs]
    expected_inputs, expected_outputs = list(model.inputs), outputs
    if model.scheme == "onnx":
        expected_inputs, expected_outputs = _names_in_file(model)
        if model.outputs:
            # Inputs that these outputs do not depend on are left out.
            expected_inputs = [name for name in expected_inputs if name in inputs]
    for what, found, expected in (("inputs", inputs, expected_inputs), ("outputs", outputs, expected_outputs)):
        if found != expected:
            problem = f"has the {what} {', '.join(found)}; model {build.model} has {', '.join(expected)}"
            raise DocumentError(folder, problem, "compile")


def _names_in_file(model: ModelSpec) -> tuple[list[str], list[str]]:
    """Return the names of an ONNX file's inputs without fixed values, and of the outputs to compute."""
    import onnx

    graph = onnx.load(model.location, format="protobuf", load_external_data=False).graph
    fixed = {tensor.name for tensor in graph.initializer} | set(model.values)
    inputs = [value.name for value in graph.input if value.name not in fixed]
    return inputs, list(model.outputs) or [value.name for value in graph.output]
