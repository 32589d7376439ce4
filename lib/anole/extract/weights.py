"""Randomize the weights of an untrained network, which makes its outputs depend on every layer and on the input.

With default initialization, networks often compute nearly the same output for every input: some layers start at zero,
scales at 1e-6, and signals shrink from layer to layer. Comparing outputs would not detect a wrong layer.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import product
from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.overrides import TorchFunctionMode

_SEED = 0
_RANDOM_RANGE = 0.25
"""The relative range around their former value in which constant weights are randomized."""

_ROUNDING_STEPS = 256
"""Steps between two powers of two to which measured values are rounded: coarse enough to give the same weights on
CPUs that sum in another order."""

_TARGET_RMS = 0.5
"""The root mean square of a layer's output before its bias. With 1, products of activations, as in gates and attention,
would amplify rounding errors."""

_EQUAL_WEIGHT_VALUES = 64
"""The number of values at which a channel's own statistics have the same weight as the mean over all channels."""

_MIN_RELATIVE_VARIANCE = 0.25
"""Min variance of a channel, relative to the mean over all channels."""

_MAX_CACHED_VALUES = 2**16
"""The number of results in double precision that fit into a core's cache together with as many operands."""

_N_PATCHES = 8
"""Patches of equal values along each axis of the second input, which makes it differ from noise."""

_MIN_SCALE = 0.1
"""Smaller scales are randomized around 0.5: a scale of 1e-6 would hide its layer and, with a shift, also the input."""


def randomize_weights(
    network: torch.nn.Module,
    arguments: Sequence[torch.Tensor],
    call: Callable[[torch.nn.Module, Sequence[torch.Tensor]], Any] = lambda network, arguments: network(*arguments),
) -> None:
    """Randomize a network's weights in place, the same in every process, to make its outputs depend on its inputs.

    Constant weights become random. The network then runs once on two inputs, in double precision: each convolution and
    linear layer is scaled to a fixed root mean square before its bias, and each batch-norm gets the statistics of its
    input. This calibration is skipped if some weights are not in single precision.
    """
    generator = torch.Generator().manual_seed(_SEED)
    with torch.no_grad():
        for name, weight in network.named_parameters():
            _randomize(name, weight, generator)
    dtypes = {value.dtype for value in network.state_dict().values() if value.is_floating_point()}
    if dtypes != {torch.float32}:
        return
    with torch.no_grad(), _copy_in_double(network) as double:
        _calibrate(double, arguments, call, torch.Generator().manual_seed(_SEED))
        calibrated = double.state_dict()
        for name, value in network.state_dict().items():
            value.copy_(calibrated[name])


@contextmanager
def _copy_in_double(network: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """Yield a double-precision copy, since a run may change a network, or the network itself if it cannot be copied."""
    copies = {id(value): _widen(value) for value in (*network.parameters(), *network.buffers())}
    try:
        working_copy = copy.deepcopy(network, dict(copies))
    except Exception:
        copies.clear()
        working_copy = network
    try:
        yield working_copy.double()
    finally:
        if working_copy is network:
            network.float()
        for value in copies.values():
            # Free the copy's memory, twice the network's size, before the garbage collector finds its cycles.
            value.untyped_storage().resize_(0)


def _widen(value: torch.Tensor) -> torch.Tensor:
    """Return a copy of a weight or buffer, in double precision if it is floating-point."""
    tensor = value.detach().to(torch.float64 if value.is_floating_point() else value.dtype, copy=True)
    is_parameter = isinstance(value, torch.nn.Parameter)
    return torch.nn.Parameter(tensor, value.requires_grad) if is_parameter else tensor


def _randomize(name: str, weight: torch.nn.Parameter, generator: torch.Generator) -> None:
    """Randomize a weight whose values are all equal; scale up per-channel factors that are all small."""
    if not weight.is_floating_point() or not weight.numel():
        return
    if not torch.all(weight == weight.flatten()[0]):
        if weight.dim() == 1 and not name.endswith("bias"):
            rms = float(weight.double().square().mean().sqrt())
            if rms < _MIN_SCALE:
                weight.mul_(float(_round(torch.tensor(1 / rms, dtype=torch.float64))))
        return
    value = float(weight.flatten()[0])
    values = torch.empty(weight.shape, dtype=weight.dtype).uniform_(-_RANDOM_RANGE, _RANDOM_RANGE, generator=generator)
    if weight.numel() == 1:
        values = values + 0.5 if abs(value) < _MIN_SCALE else torch.full_like(values, value)
    elif value and not name.endswith("bias"):
        values = (values + 1) * (value if abs(value) >= _MIN_SCALE else 0.5)
    weight.copy_(values)


def _calibrate(
    network: torch.nn.Module, arguments: Sequence[torch.Tensor], call: Callable[..., Any], generator: torch.Generator
) -> None:
    """Set each layer's scale and statistics from a run; a network that runs on neither input is not changed."""
    pairs = [_pair(argument, generator) for argument in arguments]
    for inputs in (pairs, list(arguments)):
        calibrated: set[int] = set()
        with _DepthwiseByTaps(), ExitStack() as hooks:
            for layer in network.modules():
                _hook(layer, calibrated, hooks)
            try:
                call(network, [argument.double() if argument.is_floating_point() else argument for argument in inputs])
            except Exception:
                # A network may hard-code its batch size or single precision.
                continue
            return


def _pair(argument: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return two rows of an argument; a missing second row is filled with random patches."""
    if argument.dim() == 0 or len(argument) > 1:
        return argument[:2] if argument.dim() else argument
    if argument.is_floating_point():
        second = torch.randn([min(size, _N_PATCHES) for size in argument.shape], generator=generator)
        for axis, size in enumerate(argument.shape):
            second = second.index_select(axis, torch.arange(size) * min(size, _N_PATCHES) // max(size, 1))
    else:
        second = torch.randint(0, 2, argument.shape, generator=generator)
    return torch.cat([argument, second.to(argument.dtype)])


def _hook(layer: torch.nn.Module, calibrated: set[int], hooks: ExitStack) -> None:
    """Register a hook that calibrates a layer at its first run; closing `hooks` removes it."""

    def once(set_layer: Callable[..., Any]) -> Callable[..., Any]:
        def hook(*hook_arguments: Any) -> Any:
            if id(layer) in calibrated:
                return None
            calibrated.add(id(layer))
            return set_layer(*hook_arguments)

        return hook

    if isinstance(layer, _BatchNorm) and layer.running_mean is not None:
        hooks.callback(layer.register_forward_pre_hook(once(_set_statistics)).remove)
    elif isinstance(layer, (_ConvNd, torch.nn.Linear)) and "weight" in layer._parameters:
        hooks.callback(layer.register_forward_hook(once(_set_scale)).remove)


class _DepthwiseByTaps(TorchFunctionMode):
    """A context in which `_sum_taps` computes depthwise layers, for which torch takes seconds in double precision."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.conv2d and len(args) == 7 and all(isinstance(argument, tuple) for argument in args[3:6]):
            data, weight, *_, groups = args
            if data.dim() == 4 and groups == data.shape[1] == len(weight) > 1:
                return _sum_taps(*args[:6])
        return func(*args, **(kwargs or {}))


def _sum_taps(
    data: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *geometry: tuple[int, int]
) -> torch.Tensor:
    """Compute a depthwise convolution tap by tap, on blocks of rows that fit into the cache."""
    (dy, dx), (row_pad, column_pad), dilation = geometry
    padded = torch.nn.functional.pad(data, (column_pad, column_pad, row_pad, row_pad)).permute(0, 2, 3, 1).contiguous()
    rows, columns = (
        (size - gap * (taps - 1) - 1) // step + 1
        for size, gap, taps, step in zip(padded.shape[1:3], dilation, weight.shape[2:], geometry[0], strict=True)
    )
    result = padded.new_zeros(len(data), rows, columns, len(weight))
    if bias is not None:
        result += bias
    n_rows = max(1, _MAX_CACHED_VALUES // max(columns * len(weight), 1))
    for image, first in product(range(len(data)), range(0, rows, n_rows)):
        block = result[image, first : first + n_rows]
        for row, column in product(*map(range, weight.shape[2:])):
            top, left = first * dy + row * dilation[0], column * dilation[1]
            ends = top + dy * (len(block) - 1) + 1, left + dx * (columns - 1) + 1
            block.addcmul_(padded[image, top : ends[0] : dy, left : ends[1] : dx], weight[:, 0, row, column])
    return result.permute(0, 3, 1, 2)


def _set_statistics(layer: _BatchNorm, inputs: tuple[torch.Tensor, ...]) -> None:
    """Set a batch-norm's statistics; the fewer values a channel has, the closer they are to the mean of all channels.

    Statistics computed from few values would make the network chaotic, which amplifies rounding errors.
    """
    data = inputs[0]
    axes, _ = _per_channel(data, 1)
    share = (n_values := data.numel() / data.shape[1]) / (n_values + _EQUAL_WEIGHT_VALUES)
    spread, center = torch.var_mean(data, axes, correction=0)
    mean = share * center
    variance = spread + (center - mean).square()
    average = variance.mean()
    if layer.running_mean is None or layer.running_var is None or not 0 < float(average) < torch.inf:
        return
    layer.running_mean.copy_(_round(mean))
    layer.running_var.copy_(
        _round((share * variance + (1 - share) * average).clamp(min=_MIN_RELATIVE_VARIANCE * float(average)))
    )


def _set_scale(layer: Any, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> torch.Tensor | None:
    """Scale a layer's output before its bias to the root mean square of all layers."""
    channel = output.dim() - 1 if isinstance(layer, torch.nn.Linear) else output.dim() - (layer.weight.dim() - 1)
    _, shape = _per_channel(output, channel)
    bias = 0 if layer.bias is None else layer.bias.reshape(shape)
    without_bias = output - bias
    rms = float(torch.linalg.vector_norm(without_bias)) / max(without_bias.numel(), 1) ** 0.5
    if not 0 < rms < torch.inf:
        return None
    scale = float(_round(torch.tensor(_TARGET_RMS / rms, dtype=torch.float64)))
    layer.weight.mul_(scale)
    return without_bias.mul_(scale).add_(bias)


def _per_channel(data: torch.Tensor, channel: int) -> tuple[list[int], list[int]]:
    """Return all axes but the channel axis, and the shape in which per-channel values broadcast."""
    axes = [axis for axis in range(data.dim()) if axis != channel]
    return axes, [-1 if axis == channel else 1 for axis in range(data.dim())]


def _round(values: torch.Tensor) -> torch.Tensor:
    """Round values to the significant digits that are the same on every CPU."""
    mantissa, exponent = torch.frexp(values)
    return torch.ldexp((mantissa * 2 * _ROUNDING_STEPS).round() / (2 * _ROUNDING_STEPS), exponent)
