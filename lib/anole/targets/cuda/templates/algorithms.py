"""The algorithms that a convolution on CUDA may have; a config chooses one where there are two."""

from __future__ import annotations

from functools import cache

from anole.record import Config
from anole.space import ALGORITHM, Space, union
from anole.targets.cuda.device.architecture import BlockLimits
from anole.targets.cuda.templates.conv2d_space import conv2d_default, conv2d_space
from anole.targets.cuda.templates.winograd_space import can_winograd, winograd_space
from anole.task import Conv2d

DIRECT, WINOGRAD = "direct", "winograd"


@cache
def convolution_space(limits: BlockLimits, w: Conv2d) -> Space:
    """Returns the space of a convolution that is not depthwise: direct and, where it can be, Winograd's."""
    direct = conv2d_space(limits, w)
    return union({DIRECT: direct, WINOGRAD: winograd_space(limits, w)}) if can_winograd(w) else direct


def convolution_default(limits: BlockLimits, w: Conv2d) -> Config:
    """Returns a config that should be decent without any tuning: a direct one, as long as nothing was measured."""
    direct = conv2d_default(limits, w)
    return {ALGORITHM: DIRECT, **direct} if can_winograd(w) else direct
