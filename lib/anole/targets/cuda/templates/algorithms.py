"""The algorithms of a convolution on CUDA; where there are two, a config chooses one."""

from __future__ import annotations

from functools import cache

from anole.record import Config
from anole.space import ALGORITHM, Space, union
from anole.targets.cuda.device.architecture import BlockLimits
from anole.targets.cuda.templates.conv2d_space import conv2d_space
from anole.targets.cuda.templates.depthwise_space import depthwise_space, is_depthwise
from anole.targets.cuda.templates.winograd_space import can_winograd, winograd_space
from anole.targets.shared.algorithm_names import DIRECT, WINOGRAD
from anole.task import Conv2d


def has_choice(w: Conv2d) -> bool:
    """Returns whether a convolution may be direct or Winograd's."""
    return can_winograd(w) and not is_depthwise(w) and not w.exact


@cache
def convolution_space(limits: BlockLimits, w: Conv2d) -> Space:
    """Returns the space of a convolution: depthwise, or direct and, where applicable, Winograd."""
    if is_depthwise(w):
        return depthwise_space(limits, w)
    direct = conv2d_space(limits, w)
    return union({DIRECT: direct, WINOGRAD: winograd_space(limits, w)}) if has_choice(w) else direct


def convolution_default(limits: BlockLimits, w: Conv2d) -> Config:
    """Returns a valid config of most merit; where there is a choice, a direct one until something is measured."""
    if not has_choice(w):
        return convolution_space(limits, w).best_drawn
    return {ALGORITHM: DIRECT, **conv2d_space(limits, w).best_drawn}
