"""One network for all sizes of a range, made from the networks of a few: what differs between them follows the sizes.

A model is imported at fixed sizes, as every other model, so that each pass may compute with numbers. In normal form,
the networks of two sizes differ in numbers alone, which are sums of products of the sizes. Another network, at the
largest sizes, has to agree, or the model is refused.
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
from anole.ir.symbols import all_static, size_hint, symbol_names, symbol_of, text_of, varying_texts
from anole.targets.shared.recurrence import recurrence_of
from anole.targets.shared.recurrent_kernel import recurrent_kernel

if TYPE_CHECKING:
    from anole.config.entries import ModelSpec
    from anole.documents.tensor_info import TensorInfo

Sizes = Mapping[str, int]

LARGEST = "tir_var_upper_bound"
"""TVM's attribute of a function: the largest values of its symbols, for which it plans memory."""


class ShapeDependentGraph(ValueError):
    """Networks of several sizes differ in more than sizes."""


def with_symbolic_shapes(model: ModelSpec, load: Callable[[ModelSpec], Imported]) -> Imported:
    """Return a model's network for all sizes of its ranges.

    Args:
        model: the model, with ranges.
        load: returns its network in normal form at fixed sizes.

    Raises:
        ExtractError: the model cannot be imported, or its networks do not follow its sizes.
    """
    samples = list(_samples(model))
    networks = [load(model.at(sizes)) for sizes in samples]
    try:
        module = _Joiner(model.ranges, samples, [each.module for each in networks]).joined()
    except ShapeDependentGraph as error:
        ranges = ", ".join(f"{name}: {each}" for name, each in model.ranges.items())
        raise ExtractError(
            f"model {model.name}: no network serves all sizes of {ranges}: {error}. "
            "Give fixed sizes, and a model for each"
        ) from error
    most = {name: sizes.max for name, sizes in symbol_names(model.ranges).items()}
    main = module["main"].with_attr(LARGEST, most)
    module.update_func(module.get_global_var("main"), main)
    fields = list(main.ret_ty.fields) if isinstance(main.ret_ty, ir.TupleType) else [main.ret_ty]
    _check_images(model, main)
    inputs = _varying(networks[0].inputs, [param.ty for param in main.params])
    return replace(networks[0], module=module, inputs=inputs, outputs=_varying(networks[0].outputs, fields))


def _check_images(model: ModelSpec, main: relax.Function) -> None:
    """Raise ExtractError if more of a convolution's data varies than its batch."""
    for binding in bindings(main):
        if operator_of(binding.value) != "relax.nn.conv2d":
            continue
        shape = list(binding.value.args[0].ty.shape)
        if not all_static(shape[1:]):
            found = ", ".join(str(size_hint(each) or each) for each in shape)
            raise ExtractError(
                f"model {model.name}: found a convolution with data of shape [{found}]; "
                "only the batch, the first dimension of images, may be a range"
            )


def _varying(infos: Sequence[TensorInfo], types: Sequence[Any]) -> tuple[TensorInfo, ...]:
    return tuple(replace(info, varying=varying_texts(ty.shape)) for info, ty in zip(infos, types, strict=True))


def _samples(model: ModelSpec) -> Iterator[dict[str, int]]:
    """Yield sizes: the usual and the low one of each range, in all combinations, and then the largest of all."""
    for choice in product(*(each.samples[:2] for each in model.ranges.values())):
        yield dict(zip(model.ranges, choice, strict=True))
    yield {name: each.samples[2] for name, each in model.ranges.items()}


class _Joiner:
    """Walks several networks together and builds the one of all sizes.

    Attributes:
        ranges: the range of each size, by its name.
        samples: the sizes of each network; the first ones are the corners of a box, and the last one has the largest
            sizes.
        modules: the networks.
    """

    def __init__(
        self, ranges: Mapping[str, SizeRange], samples: Sequence[Sizes], modules: Sequence[tvm.IRModule]
    ) -> None:
        self._samples, self._modules = samples, modules
        self._symbols = {name: symbol_of(name, sizes) for name, sizes in ranges.items()}
        self._analyzer = sym.Analyzer()
        self._known: list[dict[relax.Var, relax.Var]] = [{} for _ in samples]
        self._builder = relax.BlockBuilder()

    def joined(self) -> tvm.IRModule:
        """Return the module of all sizes."""
        mains = [module["main"] for module in self._modules]
        params = [self._param(each) for each in zip(*(main.params for main in mains), strict=True)]
        bound = [list(bindings(main)) for main in mains]
        for sizes, found in zip(self._samples, bound, strict=True):
            if len(found) != len(bound[0]):
                first = f"{len(bound[0])} operators at {_describe(self._samples[0])}"
                raise ShapeDependentGraph(f"it has {first}, {len(found)} at {_describe(sizes)}")
        with self._builder.function("main", params):
            with self._builder.dataflow():
                for each in zip(*bound, strict=True):
                    made = self._builder.emit(self._joined([binding.value for binding in each]))
                    self._note([binding.var for binding in each], made)
                result = self._builder.emit_output(self._joined([main.body.body for main in mains]))
            self._builder.emit_func_output(result)
        return self._builder.get()

    def _param(self, params: Sequence[relax.Var]) -> relax.Var:
        made = relax.Var(str(params[0].name), self._type([param.ty for param in params]))
        self._note(params, made)
        return made

    def _note(self, variables: Sequence[relax.Var], made: relax.Var) -> None:
        for known, variable in zip(self._known, variables, strict=True):
            known[variable] = made

    def _joined(self, each: Sequence[ir.Expr]) -> ir.Expr:
        first = each[0]
        if any(type(other) is not type(first) for other in each):
            raise ShapeDependentGraph("its operators are others at other sizes")
        if isinstance(first, relax.Var):
            (found, *others) = (known[variable] for known, variable in zip(self._known, each, strict=True))
            if any(not found.same_as(other) for other in others):
                raise ShapeDependentGraph("its values are read by others at other sizes")
            return found
        if isinstance(first, ir.GenericConst):
            return self._constant([value_of(constant) for constant in each], first)
        if isinstance(first, relax.ShapeExpr):
            return relax.ShapeExpr([self._size(extents) for extents in _together(shape.values for shape in each)])
        if isinstance(first, tirx.IntImm):
            return self._size(each)
        if isinstance(first, ir.Tuple):
            return relax.Tuple([self._joined(fields) for fields in _together(one.fields for one in each)])
        if isinstance(first, relax.TupleGetItem):
            return relax.TupleGetItem(self._joined([one.tuple_value for one in each]), first.index)
        if isinstance(first, ir.Call):
            return self._call(each)
        if isinstance(first, ir.GlobalVar):
            return self._kernel(each)
        for other in each[1:]:
            if not _is_same(first, other):
                raise ShapeDependentGraph(
                    f"it computes with {first} at {_describe(self._samples[0])} and with {other} at others"
                )
        return first

    def _kernel(self, variables: Sequence[ir.GlobalVar]) -> ir.GlobalVar:
        """Return the kernel of a recurrent layer, whose steps and batch may vary."""
        layers = [recurrence_of(module[variable]) for module, variable in zip(self._modules, variables, strict=True)]
        first = layers[0]
        alike = [each and first and replace(each, steps=first.steps, batch=first.batch) for each in layers]
        if first is None or any(each != first for each in alike):
            raise ShapeDependentGraph("it has other functions at other sizes")
        steps, batch = (self._symbol(name, [getattr(layer, name) for layer in layers]) for name in ("steps", "batch"))
        joined = replace(first, steps_symbol=steps, batch_symbol=batch)
        return self._builder.add_func(recurrent_kernel(joined), joined.cell)

    def _symbol(self, name: str, values: Sequence[int]) -> str | None:
        """Return the name of the range that a recurrent layer's extent is; None if it is fixed."""
        size = self._size([tirx.IntImm("int64", value) for value in values])
        if not isinstance(size, (tirx.IntImm, tirx.Var)):
            raise ShapeDependentGraph(
                f"found {name} = {text_of(size)} of a recurrent layer; allowed: fixed, or a range"
            )
        return str(size.name) if isinstance(size, tirx.Var) else None

    def _call(self, calls: Sequence[ir.Call]) -> ir.Expr:
        first, name = calls[0], operator_of(calls[0])
        for other in calls[1:]:
            if not _is_same(first.op, other.op) or not _is_same(first.attrs, other.attrs):
                raise ShapeDependentGraph(
                    f"{name or 'a function'} is another operator, or has other attributes, at other sizes"
                )
        operands = [self._joined(operands) for operands in _together(call.args for call in calls)]
        types = [self._type(types) for types in _together(call.ty_args for call in calls)]
        return ir.Call(first.op, operands, first.attrs, types)

    def _type(self, types: Sequence[Any]) -> Any:
        first = types[0]
        if isinstance(first, ir.TupleType):
            return ir.TupleType([self._type(fields) for fields in _together(each.fields for each in types)])
        return relax.TensorType(
            [self._size(extents) for extents in _together(each.shape for each in types)], first.dtype
        )

    def _size(self, numbers: Sequence[Any]) -> Any:
        """Return the number of all sizes: a sum of products of sizes, with whole factors."""
        values, dtype = [int(number) for number in numbers], str(numbers[0].ty.dtype)
        if len(set(values)) == 1:
            return tirx.IntImm(dtype, values[0])
        names = list(self._symbols)
        corners, others = self._samples[: 2 ** len(names)], self._samples[2 ** len(names) :]
        first, factors = corners[0], dict[tuple[str, ...], Fraction]()
        for corner in corners:
            changed = [name for name in names if corner[name] != first[name]]
            inside = [
                (-1) ** sum(other[name] != corner[name] for name in changed) * value
                for other, value in zip(corners, values, strict=False)
                if all(other[name] == first[name] for name in names if name not in changed)
            ]
            slope = Fraction(sum(inside), _product(corner[name] - first[name] for name in changed))
            # The product of each changed size's distance from the first, multiplied out.
            for n in range(len(changed) + 1):
                for kept in combinations(changed, n):
                    rest = _product(-first[name] for name in changed if name not in kept)
                    factors[kept] = factors.get(kept, Fraction()) + slope * rest
        found = [
            sum(factor * _product(sizes[name] for name in kept) for kept, factor in factors.items()) for sizes in others
        ]
        if found != values[len(corners) :] or any(factor.denominator > 1 for factor in factors.values()):
            raise ShapeDependentGraph(
                f"a size is {', '.join(map(str, values))} at {'; '.join(map(_describe, self._samples))}"
            )
        total: Any = tirx.IntImm("int64", 0)
        for kept, factor in factors.items():
            total = total + reduce(mul, (self._symbols[name] for name in kept), tirx.IntImm("int64", int(factor)))
        return self._analyzer.simplify(total)

    def _constant(self, values: Sequence[Any], first: ir.GenericConst) -> ir.Expr:
        """Return a constant of all sizes, which may be a part of the largest one, from its first element on."""
        if all(np.array_equal(value, values[0], equal_nan=value.dtype.kind == "f") for value in values):
            return first
        largest = values[-1]
        for value in values:
            part = largest[tuple(slice(size) for size in value.shape)] if value.ndim == largest.ndim else None
            if part is None or not np.array_equal(part, value, equal_nan=value.dtype.kind == "f"):
                shapes = ", ".join(str(list(each.shape)) for each in (values[0], largest))
                raise ShapeDependentGraph(f"it computes with constants that depend on the size, of shapes {shapes}")
        axes = [axis for axis in range(largest.ndim) if len({value.shape[axis] for value in values}) > 1]
        ends = [self._size([tirx.IntImm("int64", value.shape[axis]) for value in values]) for axis in axes]
        whole = self._builder.emit(relax.const(largest, str(largest.dtype)))
        return relax.op.strided_slice(whole, axes, [0] * len(axes), ends, assume_inbound=True)


def _together(parts: Any) -> list[tuple[Any, ...]]:
    """Return what is at the same place in several lists; raises ShapeDependentGraph if one is longer."""
    try:
        return list(zip(*parts, strict=True))
    except ValueError as error:
        raise ShapeDependentGraph("its values have other numbers of axes at other sizes") from error


def _product(factors: Any) -> int:
    return reduce(mul, factors, 1)


def _is_same(one: Any, other: Any) -> bool:
    return one is other or (one is not None and other is not None and bool(tvm_ffi.structural_equal(one, other)))


def _describe(sizes: Sizes) -> str:
    return ", ".join(f"{name} {size}" for name, size in sizes.items())
