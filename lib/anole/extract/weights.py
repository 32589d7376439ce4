"""Draws weights for a network that has none: every layer then matters, and the outputs depend on the input.

Networks as their authors initialise them often compute almost the same for every input: layers begin at zero, scales
at 1e-6, and what is left of the input shrinks from layer to layer. No comparison of outputs would find a wrong layer.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

_SEED = 0
_SPREAD = 0.25
"""How far what was constant is drawn from its former value."""

_SIZE = 0.5
"""The root mean square of what a layer adds to its bias. Products of what layers compute, as in gates and attention,
would enlarge every difference if it were one, also that of rounding."""

_ENOUGH = 64
"""A channel with so many values counts as much as all channels together."""

_LEAST = 0.25
"""The least variance of a channel, relative to the mean over all channels."""

_PATCHES = 8
"""Patches of equal values along each axis of the second input: networks shall work on more than noise."""

_SMALL = 0.1
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
    """Change a network's weights in place, the same in every process on one machine, for outputs that depend on inputs.

    Whatever is constant is drawn at random. Then the network runs once on two inputs; each convolution and linear layer
    is scaled so that what it adds to its bias has one root mean square, and each batch-norm gets the statistics of its
    input. Where some weights are not in single precision, this is left out.
    """
    n_threads = torch.get_num_threads()
    # More threads would add in another order.
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(_SEED)
    try:
        with torch.no_grad():
            for name, weight in network.named_parameters():
                _vary(name, weight, generator)
            if {value.dtype for value in network.state_dict().values() if value.is_floating_point()} == {torch.float32}:
                _calibrate(network, arguments, call)
    finally:
        torch.set_num_threads(n_threads)


def _vary(name: str, weight: torch.nn.Parameter, generator: torch.Generator) -> None:
    """Draws a weight whose values are all equal, and scales the factors of channels to one if all are small."""
    if not weight.is_floating_point() or not weight.numel():
        return
    if not torch.all(weight == weight.flatten()[0]):
        if weight.dim() == 1 and not name.endswith("bias"):
            size = float(weight.double().square().mean().sqrt())
            if size < _SMALL:
                weight.mul_(1 / size)
        return
    value = float(weight.flatten()[0])
    drawn = torch.empty(weight.shape, dtype=weight.dtype).uniform_(-_SPREAD, _SPREAD, generator=generator)
    if weight.numel() == 1:
        drawn = drawn + 0.5 if abs(value) < _SMALL else torch.full_like(drawn, value)
    elif value and not name.endswith("bias"):
        drawn = (drawn + 1) * (value if abs(value) >= _SMALL else 0.5)
    weight.copy_(drawn)


def _calibrate(network: torch.nn.Module, arguments: Sequence[torch.Tensor], call: Callable[..., Any]) -> None:
    """Sets each layer's scale and shift by what it computes; a network that takes neither input stays as it is."""
    generator = torch.Generator().manual_seed(_SEED)
    pairs = [_pair(each, generator) for each in arguments]
    try:
        # Networks may keep what they compute.
        copied = copy.deepcopy(network)
    except Exception:
        copied = network
    for given in (pairs, list(arguments)):
        done: set[int] = set()
        with ExitStack() as hooks:
            for layer in copied.modules():
                _hook(layer, done, hooks)
            # A network may have its batch size in its code.
            with suppress(Exception):
                call(copied, given)
                break
    weights = copied.state_dict()
    for name, value in network.state_dict().items():
        value.copy_(weights[name])


def _pair(argument: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Returns two rows of an argument's first axis, the second one drawn in patches if there is none."""
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
    """Lets a layer be set when it runs, until the hooks are closed; one that runs several times by its first run."""

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


def _set_statistics(layer: _BatchNorm, given: tuple[torch.Tensor, ...]) -> None:
    """Sets a batch-norm's statistics; the fewer values a channel has, the nearer to what all channels have together.

    Statistics of few values would make the network chaotic: it would enlarge every difference, also that of rounding.
    """
    data = given[0]
    axes, _ = _apart(data, 1)
    share = (n_values := data.numel() / data.shape[1]) / (n_values + _ENOUGH)
    spread, centre = torch.var_mean(data, axes, correction=0)
    mean = share * centre
    variance = spread + (centre - mean).square()
    typical = variance.mean()
    if layer.running_mean is None or layer.running_var is None or not 0 < float(typical) < torch.inf:
        return
    layer.running_mean.copy_(mean)
    layer.running_var.copy_((share * variance + (1 - share) * typical).clamp(min=_LEAST * float(typical)))


def _set_scale(layer: Any, given: tuple[torch.Tensor, ...], found: torch.Tensor) -> torch.Tensor | None:
    """Scales a layer so that what it adds to its bias has the root mean square that all layers have."""
    channel = found.dim() - 1 if isinstance(layer, torch.nn.Linear) else found.dim() - (layer.weight.dim() - 1)
    _, shape = _apart(found, channel)
    bias = 0 if layer.bias is None else layer.bias.reshape(shape)
    plain = found - bias
    size = float(torch.linalg.vector_norm(plain)) / max(plain.numel(), 1) ** 0.5
    if not 0 < size < torch.inf:
        return None
    scale = _SIZE / size
    layer.weight.mul_(scale)
    return plain.mul_(scale).add_(bias)


def _apart(data: torch.Tensor, channel: int) -> tuple[list[int], list[int]]:
    """Returns all axes but that of the channels, and the shape of one value for each channel."""
    axes = [axis for axis in range(data.dim()) if axis != channel]
    return axes, [-1 if axis == channel else 1 for axis in range(data.dim())]
