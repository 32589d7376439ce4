"""Build one network for all sizes of a range by interpolating between networks imported at a few sizes.

A model is imported at fixed sizes, like any other model, which lets each pass compute with integers. In normal form,
the networks of two sizes differ only in integers that are polynomials of the sizes. Another network, at the largest
sizes, must match the interpolation, or the model is rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import reduce
from itertools import combinations, product
from operator import mul
from typing import TYPE_CHECKING, Any

import numpy as np
import tvm
import tvm_ffi
from tvm import ir, relax, sym, tirx

from anole.errors import ExtractError
from anole.extract.imported import Imported
from anole.ir.mutators import bindings, operator_of, value_of
from anole.ir.ranges import SizeRange
from anole.ir.symbols import all_static, format_extent, is_static, size_hint, symbol_names, symbol_of, varying_texts
from anole.targets.shared.recurrence import recurrence_of
from anole.targets.shared.recurrent_kernel import recurrent_kernel

if TYPE_CHECKING:
    from anole.config.entries import ModelSpec
    from anole.documents.build import TensorInfo

Sizes = Mapping[str, int]

LARGEST = "tir_var_upper_bound"
"""TVM's function attribute for the maximum values of symbols, for which it plans memory."""


class ShapeDependentGraph(ValueError):
    """Raised if the networks imported at several sizes differ in more than integers."""


def with_symbolic_shapes(model: ModelSpec, load: Callable[[ModelSpec], Imported]) -> Imported:
    """Build a model's network for all sizes of its ranges.

    Args:
        model: the model, with ranges.
        load: returns its network in normal form at fixed sizes.

    Raises:
        ExtractError: the model cannot be imported, or its graph depends on the size.
    """
    samples = list(_samples(model))
    networks = [load(model.at(sizes)) for sizes in samples]
    try:
        module = _Joiner(model.ranges, samples, [network.module for network in networks]).merge()
    except ShapeDependentGraph as error:
        ranges = ", ".join(f"{name}: {sizes}" for name, sizes in model.ranges.items())
        raise ExtractError(
            f"model {model.name}: no network serves all sizes of {ranges}: {error}; "
            "use fixed sizes, with one model for each size"
        ) from error
    upper_bounds = {name: sizes.max for name, sizes in symbol_names(model.ranges).items()}
    main = module["main"].with_attr(LARGEST, upper_bounds)
    module.update_func(module.get_global_var("main"), main)
    fields = list(main.ret_ty.fields) if isinstance(main.ret_ty, ir.TupleType) else [main.ret_ty]
    _check_images(model, main)
    inputs = _set_varying(networks[0].inputs, [param.ty for param in main.params])
    return replace(networks[0], module=module, inputs=inputs, outputs=_set_varying(networks[0].outputs, fields))


def _check_images(model: ModelSpec, main: relax.Function) -> None:
    """Raise ExtractError if any extent of a convolution's data but the batch varies."""
    for binding in bindings(main):
        if operator_of(binding.value) != "relax.nn.conv2d":
            continue
        shape = list(binding.value.args[0].ty.shape)
        if not all_static(shape[1:]):
            shape_text = ", ".join(str(size_hint(extent) or extent) for extent in shape)
            raise ExtractError(
                f"model {model.name}: found a convolution with data of shape [{shape_text}]; "
                "only the batch, the first dimension of images, may be a range"
            )


def _set_varying(infos: Sequence[TensorInfo], types: Sequence[Any]) -> tuple[TensorInfo, ...]:
    return tuple(replace(info, varying=varying_texts(ty.shape)) for info, ty in zip(infos, types, strict=True))


def _samples(model: ModelSpec) -> Iterator[dict[str, int]]:
    """Yield sizes: all combinations of each range's typical and low sample, and then the largest of all ranges."""
    for choice in product(*(range_.samples[:2] for range_ in model.ranges.values())):
        yield dict(zip(model.ranges, choice, strict=True))
    yield {name: range_.samples[2] for name, range_ in model.ranges.items()}


class _Joiner:
    """A simultaneous walk over the networks of several sizes that builds one network for all sizes.

    Attributes:
        ranges: the range of each size, by its name.
        samples: the sizes of each network: first the corners of a box, and then the maximum sizes.
        modules: the networks.
    """

    def __init__(
        self, ranges: Mapping[str, SizeRange], samples: Sequence[Sizes], modules: Sequence[tvm.IRModule]
    ) -> None:
        self._samples, self._modules = samples, modules
        self._symbols = {name: symbol_of(name, sizes) for name, sizes in ranges.items()}
        self._analyzer = sym.Analyzer()
        self._merged_variables: list[dict[relax.Var, relax.Var]] = [{} for _ in samples]
        self._builder = relax.BlockBuilder()

    def merge(self) -> tvm.IRModule:
        """Return the module for all sizes."""
        mains = [module["main"] for module in self._modules]
        params = [self._merge_params(group) for group in zip(*(main.params for main in mains), strict=True)]
        binding_lists = [list(bindings(main)) for main in mains]
        for sizes, bindings_ in zip(self._samples, binding_lists, strict=True):
            if len(bindings_) != len(binding_lists[0]):
                first = f"{len(binding_lists[0])} operators at {_describe(self._samples[0])}"
                raise ShapeDependentGraph(f"it has {first}, {len(bindings_)} at {_describe(sizes)}")
        with self._builder.function("main", params):
            with self._builder.dataflow():
                for group in zip(*binding_lists, strict=True):
                    merged = self._builder.emit(self._merge([binding.value for binding in group]))
                    self._record([binding.var for binding in group], merged)
                result = self._builder.emit_output(self._merge([main.body.body for main in mains]))
            self._builder.emit_func_output(result)
        return self._builder.get()

    def _merge_params(self, params: Sequence[relax.Var]) -> relax.Var:
        merged = relax.Var(str(params[0].name), self._merge_types([param.ty for param in params]))
        self._record(params, merged)
        return merged

    def _record(self, variables: Sequence[relax.Var], merged: relax.Var) -> None:
        for merged_variables, variable in zip(self._merged_variables, variables, strict=True):
            merged_variables[variable] = merged

    def _merge(self, exprs: Sequence[ir.Expr]) -> ir.Expr:
        expr = exprs[0]
        if any(type(other) is not type(expr) for other in exprs):
            raise ShapeDependentGraph("its operators depend on the input size")
        if isinstance(expr, relax.Var):
            (merged, *rest) = (known[variable] for known, variable in zip(self._merged_variables, exprs, strict=True))
            if any(not merged.same_as(other) for other in rest):
                raise ShapeDependentGraph("the operands of its operators depend on the input size")
            return merged
        if isinstance(expr, ir.GenericConst):
            return self._merge_constants([value_of(constant) for constant in exprs], expr)
        if isinstance(expr, relax.ShapeExpr):
            return relax.ShapeExpr([self._fit(extents) for extents in _zip_equal(shape.values for shape in exprs)])
        if isinstance(expr, tirx.IntImm):
            return self._fit(exprs)
        if isinstance(expr, ir.Tuple):
            return relax.Tuple([self._merge(fields) for fields in _zip_equal(tuple_.fields for tuple_ in exprs)])
        if isinstance(expr, relax.TupleGetItem):
            return relax.TupleGetItem(self._merge([item.tuple_value for item in exprs]), expr.index)
        if isinstance(expr, ir.Call):
            return self._merge_calls(exprs)
        if isinstance(expr, ir.GlobalVar):
            return self._merge_kernels(exprs)
        for other in exprs[1:]:
            if not _is_same(expr, other):
                raise ShapeDependentGraph(
                    f"it computes with {expr} at {_describe(self._samples[0])}, and with {other} at other sizes"
                )
        return expr

    def _merge_kernels(self, variables: Sequence[ir.GlobalVar]) -> ir.GlobalVar:
        """Return the kernel of a recurrent layer, whose steps and batch may vary."""
        layers = [recurrence_of(module[variable]) for module, variable in zip(self._modules, variables, strict=True)]
        first = layers[0]
        normalized = [other and first and replace(other, steps=first.steps, batch=first.batch) for other in layers]
        if first is None or any(other != first for other in normalized):
            raise ShapeDependentGraph("its functions depend on the input size")
        steps, batch = (self._range_of(name, [getattr(layer, name) for layer in layers]) for name in ("steps", "batch"))
        kernel = replace(first, steps_symbol=steps, batch_symbol=batch)
        return self._builder.add_func(recurrent_kernel(kernel), kernel.cell)

    def _range_of(self, name: str, values: Sequence[int]) -> str | None:
        """Return the name of the range that determines a recurrent layer's extent; None if it is fixed."""
        size = self._fit([tirx.IntImm("int64", value) for value in values])
        if not isinstance(size, (tirx.IntImm, tirx.Var)):
            raise ShapeDependentGraph(
                f"a recurrent layer has {name} = {format_extent(size)}; it must be fixed, or one of the ranges"
            )
        return str(size.name) if isinstance(size, tirx.Var) else None

    def _merge_calls(self, calls: Sequence[ir.Call]) -> ir.Expr:
        first, name = calls[0], operator_of(calls[0])
        for other in calls[1:]:
            if not _is_same(first.op, other.op) or not _is_same(first.attrs, other.attrs):
                raise ShapeDependentGraph(
                    f"the attributes of {name or 'a function'}, or the operator itself, depend on the input size"
                )
        operands = [self._merge(operands) for operands in _zip_equal(call.args for call in calls)]
        types = [self._merge_types(types) for types in _zip_equal(call.ty_args for call in calls)]
        return ir.Call(first.op, operands, first.attrs, types)

    def _merge_types(self, types: Sequence[Any]) -> Any:
        first = types[0]
        if isinstance(first, ir.TupleType):
            return ir.TupleType([self._merge_types(fields) for fields in _zip_equal(ty.fields for ty in types)])
        return relax.TensorType([self._fit(extents) for extents in _zip_equal(ty.shape for ty in types)], first.dtype)

    def _fit(self, extents: Sequence[Any]) -> Any:
        """Interpolate integers by a polynomial of the sizes with integer coefficients."""
        values, dtype = [int(number) for number in extents], str(extents[0].ty.dtype)
        if len(set(values)) == 1:
            return tirx.IntImm(dtype, values[0])
        names = list(self._symbols)
        corners, tests = self._samples[: 2 ** len(names)], self._samples[2 ** len(names) :]
        first, terms = corners[0], dict[tuple[str, ...], Fraction]()
        for corner in corners:
            changed = [name for name in names if corner[name] != first[name]]
            differences = [
                (-1) ** sum(other[name] != corner[name] for name in changed) * value
                for other, value in zip(corners, values, strict=False)
                if all(other[name] == first[name] for name in names if name not in changed)
            ]
            slope = Fraction(sum(differences), _product(corner[name] - first[name] for name in changed))
            # Expand the product of the distances of the changed sizes from the first corner.
            for n in range(len(changed) + 1):
                for term in combinations(changed, n):
                    constant = _product(-first[name] for name in changed if name not in term)
                    terms[term] = terms.get(term, Fraction()) + slope * constant
        predicted = [
            sum(factor * _product(sizes[name] for name in term) for term, factor in terms.items()) for sizes in tests
        ]
        if predicted != values[len(corners) :] or any(factor.denominator > 1 for factor in terms.values()):
            raise ShapeDependentGraph(
                f"a size is {', '.join(map(str, values))} at {'; '.join(map(_describe, self._samples))}; "
                "allowed: sums of products of the ranges' sizes"
            )
        total: Any = tirx.IntImm("int64", 0)
        for term, factor in terms.items():
            total = total + reduce(mul, (self._symbols[name] for name in term), tirx.IntImm("int64", int(factor)))
        return self._analyzer.simplify(total)

    def _merge_constants(self, values: Sequence[Any], first: ir.GenericConst) -> ir.Expr:
        """Return a constant for all sizes; a constant that grows with the size is sliced from the largest one."""
        if all(np.array_equal(value, values[0], equal_nan=value.dtype.kind == "f") for value in values):
            return first
        largest = values[-1]
        types = [relax.TensorType(value.shape, str(value.dtype)) for value in values]
        shape = list(self._merge_types(types).shape)
        parts = [largest[tuple(slice(size) for size in value.shape)] for value in values]
        if all(np.array_equal(*pair, equal_nan=largest.dtype.kind == "f") for pair in zip(parts, values, strict=True)):
            ends = {axis: extent for axis, extent in enumerate(shape) if not is_static(extent)}
            constant = self._builder.emit(relax.const(largest, str(largest.dtype)))
            return relax.op.strided_slice(constant, list(ends), [0] * len(ends), [*ends.values()], assume_inbound=True)
        if all(np.array_equal(value.flatten(), np.arange(value.size)) for value in values):
            # The position of each element, which torch computes from the indices of several axes.
            positions = self._builder.emit(relax.op.arange(0, reduce(mul, shape), 1, str(largest.dtype)))
            return relax.op.reshape(positions, shape)
        shapes = ", ".join(str(list(array.shape)) for array in (values[0], largest))
        raise ShapeDependentGraph(f"it computes with constants of shapes {shapes}, which depend on the size")


def _zip_equal(parts: Any) -> list[tuple[Any, ...]]:
    """Zip several lists; raise ShapeDependentGraph if their lengths differ."""
    try:
        return list(zip(*parts, strict=True))
    except ValueError as error:
        raise ShapeDependentGraph("the number of axes of its values depends on the input size") from error


def _product(factors: Any) -> int:
    return reduce(mul, factors, 1)


def _is_same(a: Any, b: Any) -> bool:
    return a is b or (a is not None and b is not None and bool(tvm_ffi.structural_equal(a, b)))


def _describe(sizes: Sizes) -> str:
    return ", ".join(f"{name} {size}" for name, size in sizes.items())
