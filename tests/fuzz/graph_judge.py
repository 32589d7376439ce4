"""Comparison of Anole's outputs for a random graph with ONNX Runtime, to distinguish errors from rounding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from .graph_generator import RandomGraph, run, run_all
from .graph_operators import EXACT

_RELATIVE = 1e-4
"""The tolerance for float32 kernels, relative to the largest value of a tensor."""
_N_PERTURBED = 12
_SPREAD_FACTOR = 4.0
_HUGE = 1e9


def judge(graph: RandomGraph, found: Sequence[Any]) -> tuple[str, str]:
    """Return the outcome of a comparison and its reason.

    - ``right``: equal up to `_RELATIVE`;
    - ``rounding``: changing inner values by one ulp causes similar differences, as at a step of Floor;
    - ``onnxruntime differs``: neither, but equal to the result of ONNX's reference implementation;
    - ``wrong``: none of these, with all inner values finite and below 1e9;
    - ``non-finite right`` and ``non-finite differs``: the same if an inner value is not finite or larger than 1e9.
    """
    expected, is_tame = _reference(graph)
    names = [each.name for each in graph.model.graph.output]
    for name, mine, theirs in zip(names, found, expected, strict=True):
        if (mine.dtype, mine.shape) != (theirs.dtype, theirs.shape):
            return "wrong", f"{name}: {mine.dtype} {mine.shape} instead of {theirs.dtype} {theirs.shape}"
    far = [_far(mine, theirs) for mine, theirs in zip(found, expected, strict=True)]
    if not any(each.any() for each in far):
        return ("right" if is_tame else "non-finite right"), ""
    if is_tame:
        spread = _spread(graph, expected)
        far = [
            each & ~(_distance(mine, theirs) <= _SPREAD_FACTOR * own)
            for each, mine, theirs, own in zip(far, found, expected, spread, strict=True)
        ]
        if not any(each.any() for each in far):
            return "rounding", ""
    at = next(index for index, each in enumerate(far) if each.any())
    mine, theirs = (str(each[at][far[at]][0]) for each in (found, expected))
    maker = next(node.op_type for node in graph.model.graph.node if names[at] in node.output)
    reason = f"{names[at]} of {maker}: {mine} instead of {theirs} ({far[at].sum()} of {far[at].size})"
    if is_tame:
        return ("onnxruntime differs" if _is_standard(graph, found) else "wrong"), reason
    return "non-finite differs", reason


def _is_standard(graph: RandomGraph, found: Sequence[Any]) -> bool:
    """Whether outputs match ONNX's reference implementation, if it can run the graph."""
    try:
        standard = list(map(np.asarray, ReferenceEvaluator(graph.model).run(None, dict(graph.inputs))))
    except Exception:
        return False
    pairs = list(zip(found, standard, strict=True))
    return all(mine.shape == theirs.shape and not _far(mine, theirs).any() for mine, theirs in pairs)


def _reference(graph: RandomGraph) -> tuple[list[Any], bool]:
    """Return the expected outputs, and whether all computed values are finite and below 1e9."""
    values = run_all(graph)
    tame = (np.all(np.isfinite(each)) and np.all(np.abs(each.astype(float)) < _HUGE) for each in values.values())
    return [values[each.name] for each in graph.model.graph.output], all(tame)


def _far(mine: Any, theirs: Any) -> Any:
    """Return a mask of elements whose difference exceeds the tolerance."""
    if theirs.dtype != np.float32:
        return mine != theirs
    largest = float(np.abs(theirs[np.isfinite(theirs)]).max(initial=0))
    return ~np.isclose(mine, theirs, rtol=_RELATIVE, atol=_RELATIVE * max(largest, 1e-3), equal_nan=True)


def _distance(mine: Any, theirs: Any) -> Any:
    return np.abs(mine.astype(float) - theirs.astype(float))


def _spread(graph: RandomGraph, expected: Sequence[Any]) -> list[Any]:
    """Return the maximum change of outputs if rounded inner values and inputs change by at most one ulp."""
    noisy, shapes = _with_noise(graph)
    rng, spread = np.random.default_rng(0), [np.zeros(each.shape) for each in expected]
    for _ in range(_N_PERTURBED):
        noise = {
            name: np.asarray(1 + rng.choice([-1, 0, 1], shape) * 2.0**-23, np.float32) for name, shape in shapes.items()
        }
        given = {f"{name}_exact" if f"{name}_noise" in noise else name: each for name, each in graph.inputs.items()}
        for own, theirs, value in zip(spread, expected, run(noisy, {**given, **noise}), strict=True):
            np.maximum(own, np.nan_to_num(_distance(value, theirs), nan=np.inf), out=own)
    return spread


def _with_noise(graph: RandomGraph) -> tuple[onnx.ModelProto, dict[str, tuple[int, ...]]]:
    """Multiply each input and result of a rounding operator by a new input; return the model and the new shapes."""
    values = {**graph.inputs, **run_all(graph)}
    noisy = onnx.ModelProto()
    noisy.CopyFrom(graph.model)
    makers = {name: node.op_type for node in noisy.graph.node for name in node.output}
    rounded = [n for n, each in values.items() if each.dtype == np.float32 and makers.get(n) not in EXACT]
    nodes: list[onnx.NodeProto] = []
    for name in (each for each in rounded if each in graph.inputs):
        nodes.append(helper.make_node("Mul", [f"{name}_exact", f"{name}_noise"], [name]))
    for node in noisy.graph.node:
        nodes.append(node)
        for index, name in enumerate(node.output):
            if name in rounded:
                node.output[index] = f"{name}_exact"
                nodes.append(helper.make_node("Mul", [f"{name}_exact", f"{name}_noise"], [name]))
    for value in noisy.graph.input:
        if value.name in rounded:
            value.name = f"{value.name}_exact"
    shapes = {f"{name}_noise": values[name].shape for name in rounded}
    # Extents are omitted, since those inferred by ONNX may differ from ONNX Runtime's.
    noisy.graph.input.extend(helper.make_tensor_value_info(name, 1, [None] * len(s)) for name, s in shapes.items())
    copied = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del noisy.graph.node[:]
    noisy.graph.node.extend(copied)
    return noisy, shapes
