"""Draws weights for a network that has none: every layer then matters, and the outputs depend on the input.

Networks as their authors initialize them often compute almost the same for every input: layers begin at zero, scales
at 1e-6, and what is left of the input shrinks from layer to layer. No comparison of outputs would find a wrong layer.
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
_SPREAD = 0.25
"""How far what was constant is drawn from its former value."""

_STEPS = 256
"""Steps between a power of two and the next one to which measured values are rounded: more than enough apart that sums
in another order, as another processor has them, give the same weights."""

_SIZE = 0.5
"""The root mean square of what a layer adds to its bias. Products of what layers compute, as in gates and attention,
would enlarge every difference if it were one, also that of rounding."""

_MIN_VALUES_PER_CHANNEL = 64
"""A channel with so many values counts as much as all channels together."""

_MIN_RELATIVE_VARIANCE = 0.25
"""The least variance of a channel, relative to the mean over all channels."""

_CACHED = 2**16
"""Numbers in double precision that stay in a core's cache, together with as many operands."""

_PATCHES = 8
"""Patches of equal values along each axis of the second input: networks shall work on more than noise."""

_TINY_SCALE = 0.1
"""Scales below it are drawn as if they were a half: a layer behind a scale of 1e-6 does not matter, nor does the input
where shifts are larger than what a layer scales."""


def call_by_position(network: torch.nn.Module, arguments: Sequence[torch.Tensor]) -> Any:
    """Run a network on positional arguments."""
    return network(*arguments)


def draw_weights(
    network: torch.nn.Module,
    arguments: Sequence[torch.Tensor],
    call: Callable[[torch.nn.Module, Sequence[torch.Tensor]], Any] = call_by_position,
) -> None:
    """Change a network's weights in place, the same in every process, so that its outputs depend on its inputs.

    Whatever is constant is drawn at random. Then the network runs once on two inputs, in double precision; each
    convolution and linear layer is scaled so that what it adds to its bias has one root mean square, and each
    batch-norm gets the statistics of its input. Where some weights are not in single precision, this is left out.
    """
    generator = torch.Generator().manual_seed(_SEED)
    with torch.no_grad():
        for name, weight in network.named_parameters():
            _vary(name, weight, generator)
    dtypes = {value.dtype for value in network.state_dict().values() if value.is_floating_point()}
    if dtypes != {torch.float32}:
        return
    with torch.no_grad(), _in_double(network) as wide:
        _calibrate(wide, arguments, call, torch.Generator().manual_seed(_SEED))
        drawn = wide.state_dict()
        for name, value in network.state_dict().items():
            value.copy_(drawn[name])


@contextmanager
def _in_double(network: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """Give a copy in double precision, since networks may keep what they compute, or the network if it has no copy."""
    wide = {id(value): _widened(value) for value in (*network.parameters(), *network.buffers())}
    try:
        copied = copy.deepcopy(network, dict(wide))
    except Exception:
        wide.clear()
        copied = network
    try:
        yield copied.double()
    finally:
        if copied is network:
            network.float()
        for value in wide.values():
            # The copy lasts until cycles of objects are collected; its memory, twice that of the network, need not.
            value.untyped_storage().resize_(0)


def _widened(value: torch.Tensor) -> torch.Tensor:
    """Return a copy of a weight, in double precision if it is a floating-point number."""
    copied = value.detach().to(torch.float64 if value.is_floating_point() else value.dtype, copy=True)
    is_parameter = isinstance(value, torch.nn.Parameter)
    return torch.nn.Parameter(copied, value.requires_grad) if is_parameter else copied


def _vary(name: str, weight: torch.nn.Parameter, generator: torch.Generator) -> None:
    """Draw a weight whose values are all equal, and scales the factors of channels to one if all are small."""
    if not weight.is_floating_point() or not weight.numel():
        return
    if not torch.all(weight == weight.flatten()[0]):
        if weight.dim() == 1 and not name.endswith("bias"):
            size = float(weight.double().square().mean().sqrt())
            if size < _TINY_SCALE:
                weight.mul_(float(_rounded(torch.tensor(1 / size, dtype=torch.float64))))
        return
    value = float(weight.flatten()[0])
    drawn = torch.empty(weight.shape, dtype=weight.dtype).uniform_(-_SPREAD, _SPREAD, generator=generator)
    if weight.numel() == 1:
        drawn = drawn + 0.5 if abs(value) < _TINY_SCALE else torch.full_like(drawn, value)
    elif value and not name.endswith("bias"):
        drawn = (drawn + 1) * (value if abs(value) >= _TINY_SCALE else 0.5)
    weight.copy_(drawn)


def _calibrate(
    network: torch.nn.Module, arguments: Sequence[torch.Tensor], call: Callable[..., Any], generator: torch.Generator
) -> None:
    """Set each layer's scale and shift by what it computes; a network that takes neither input stays as it is."""
    pairs = [_pair(each, generator) for each in arguments]
    for given in (pairs, list(arguments)):
        done: set[int] = set()
        with _DepthwiseByTaps(), ExitStack() as hooks:
            for layer in network.modules():
                _hook(layer, done, hooks)
            try:
                call(network, [each.double() if each.is_floating_point() else each for each in given])
            except Exception:
                # A network may have its batch size, or single precision, in its code.
                continue
            return


def _pair(argument: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Return two rows of an argument's first axis, the second one drawn in patches if there is none."""
    if argument.dim() == 0 or len(argument) > 1:
        return argument[:2] if argument.dim() else argument
    if argument.is_floating_point():
        other = torch.randn([min(size, _PATCHES) for size in argument.shape], generator=generator)
        for axis, size in enumerate(argument.shape):
            other = other.index_select(axis, torch.arange(size) * min(size, _PATCHES) // max(size, 1))
    else:
        other = torch.randint(0, 2, argument.shape, generator=generator)
    return torch.cat([argument, other.to(argument.dtype)])


def _hook(layer: torch.nn.Module, done: set[int], hooks: ExitStack) -> None:
    """Let a layer be set when it runs, until the hooks are closed; one that runs several times by its first run."""

    def once(set_layer: Callable[..., Any]) -> Callable[..., Any]:
        def hook(*given: Any) -> Any:
            if id(layer) in done:
                return None
            done.add(id(layer))
            return set_layer(*given)

        return hook

    if isinstance(layer, _BatchNorm) and layer.running_mean is not None:
        hooks.callback(layer.register_forward_pre_hook(once(_set_statistics)).remove)
    elif isinstance(layer, (_ConvNd, torch.nn.Linear)) and "weight" in layer._parameters:
        hooks.callback(layer.register_forward_hook(once(_set_scale)).remove)


class _DepthwiseByTaps(TorchFunctionMode):
    """A context in which depthwise layers are computed by `_by_taps`: in double precision, torch takes seconds."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.conv2d and len(args) == 7 and all(isinstance(each, tuple) for each in args[3:6]):
            data, weight, *_, groups = args
            if data.dim() == 4 and groups == data.shape[1] == len(weight) > 1:
                return _by_taps(*args[:6])
        return func(*args, **(kwargs or {}))


def _by_taps(
    data: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *geometry: tuple[int, int]
) -> torch.Tensor:
    """Return a depthwise convolution, one product for each tap of the kernel, some rows at a time in the cache."""
    (down, right), (high, wide), dilation = geometry
    padded = torch.nn.functional.pad(data, (wide, wide, high, high)).permute(0, 2, 3, 1).contiguous()
    rows, columns = (
        (size - gap * (taps - 1) - 1) // step + 1
        for size, gap, taps, step in zip(padded.shape[1:3], dilation, weight.shape[2:], geometry[0], strict=True)
    )
    found = padded.new_zeros(len(data), rows, columns, len(weight))
    if bias is not None:
        found += bias
    n_rows = max(1, _CACHED // max(columns * len(weight), 1))
    for image, first in product(range(len(data)), range(0, rows, n_rows)):
        part = found[image, first : first + n_rows]
        for row, column in product(*map(range, weight.shape[2:])):
            top, left = first * down + row * dilation[0], column * dilation[1]
            ends = top + down * (len(part) - 1) + 1, left + right * (columns - 1) + 1
            part.addcmul_(padded[image, top : ends[0] : down, left : ends[1] : right], weight[:, 0, row, column])
    return found.permute(0, 3, 1, 2)


def _set_statistics(layer: _BatchNorm, given: tuple[torch.Tensor, ...]) -> None:
    """Set a batch-norm's statistics; the fewer values a channel has, the nearer to what all channels have together.

    Statistics of few values would make the network chaotic: it would enlarge every difference, also that of rounding.
    """
    data = given[0]
    axes, _ = _apart(data, 1)
    share = (n_values := data.numel() / data.shape[1]) / (n_values + _MIN_VALUES_PER_CHANNEL)
    spread, center = torch.var_mean(data, axes, correction=0)
    mean = share * center
    variance = spread + (center - mean).square()
    typical = variance.mean()
    if layer.running_mean is None or layer.running_var is None or not 0 < float(typical) < torch.inf:
        return
    layer.running_mean.copy_(_rounded(mean))
    layer.running_var.copy_(
        _rounded((share * variance + (1 - share) * typical).clamp(min=_MIN_RELATIVE_VARIANCE * float(typical)))
    )


def _set_scale(layer: Any, given: tuple[torch.Tensor, ...], found: torch.Tensor) -> torch.Tensor | None:
    """Scale a layer so that what it adds to its bias has the root mean square that all layers have."""
    channel = found.dim() - 1 if isinstance(layer, torch.nn.Linear) else found.dim() - (layer.weight.dim() - 1)
    _, shape = _apart(found, channel)
    bias = 0 if layer.bias is None else layer.bias.reshape(shape)
    plain = found - bias
    size = float(torch.linalg.vector_norm(plain)) / max(plain.numel(), 1) ** 0.5
    if not 0 < size < torch.inf:
        return None
    scale = float(_rounded(torch.tensor(_SIZE / size, dtype=torch.float64)))
    layer.weight.mul_(scale)
    return plain.mul_(scale).add_(bias)


def _apart(data: torch.Tensor, channel: int) -> tuple[list[int], list[int]]:
    """Return all axes but that of the channels, and the shape of one value for each channel."""
    axes = [axis for axis in range(data.dim()) if axis != channel]
    return axes, [-1 if axis == channel else 1 for axis in range(data.dim())]


def _rounded(values: torch.Tensor) -> torch.Tensor:
    """Return values rounded to the significant digits that are the same on every processor."""
    mantissa, exponent = torch.frexp(values)
    return torch.ldexp((mantissa * 2 * _STEPS).round() / (2 * _STEPS), exponent)
