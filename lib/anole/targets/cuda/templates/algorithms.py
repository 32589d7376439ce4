"""The algorithms of a convolution on CUDA, of which a config may choose one, and the template of any workload."""

from __future__ import annotations

from functools import cache

from anole.errors import ConfigError
from anole.record import Config
from anole.space import ALGORITHM, Space, union
from anole.targets.base import DIRECT, WINOGRAD, Template
from anole.targets.cuda.device.architecture import BlockLimits
from anole.targets.cuda.device.multiprocessor import Multiprocessor
from anole.targets.cuda.templates.conv2d_space import conv2d_space
from anole.targets.cuda.templates.depthwise_space import depthwise_space, is_depthwise
from anole.targets.cuda.templates.gemv_space import MOST_ROWS
from anole.targets.cuda.templates.winograd_space import can_winograd, winograd_space
from anole.task import BatchMatmul, Conv2d, Workload

_GAIN = 1.5
"""How many times as fast Winograd has to be by the model to be the default. The best kernels known for 19 layers on a
V100 agree with the model where it gains so much, and where it loses (docs/results/gpu-model.md)."""


def has_choice(w: Conv2d) -> bool:
    """Returns whether a convolution may be direct or Winograd's."""
    return can_winograd(w) and not is_depthwise(w) and not w.exact


@cache
def convolution_space(limits: BlockLimits, gpu: Multiprocessor, w: Conv2d) -> Space:
    """Returns the space of a convolution: depthwise, or direct and, where applicable, Winograd."""
    if is_depthwise(w):
        return depthwise_space(limits, gpu, w)
    direct = conv2d_space(limits, gpu, w)
    if not has_choice(w):
        return direct
    return union({DIRECT: direct, WINOGRAD: winograd_space(limits, gpu, w)})


def convolution_default(limits: BlockLimits, gpu: Multiprocessor, w: Conv2d) -> Config:
    """Returns a valid config of most merit; where there is a choice, Winograd's only if it is clearly faster."""
    if not has_choice(w):
        return convolution_space(limits, gpu, w).best_drawn
    spaces = {DIRECT: conv2d_space(limits, gpu, w), WINOGRAD: winograd_space(limits, gpu, w)}
    speeds = {name: _best_speed(space) for name, space in spaces.items()}
    chosen = WINOGRAD if speeds[WINOGRAD] >= _GAIN * speeds[DIRECT] else DIRECT
    return {ALGORITHM: chosen, **spaces[chosen].best_drawn}


def _best_speed(space: Space) -> float:
    """Returns the modelled speed of a space's best config; 0 if the device has room for none."""
    try:
        return space.merit_of(space.best_drawn)
    except ConfigError:
        return 0.0


def template_of(workload: Workload, *, direct: bool = False) -> Template:
    """Returns the template of a workload; its space has the same name.

    Args:
        workload: the workload.
        direct: whether a convolution is direct where it could also be Winograd's.
    """
    from anole.targets.cuda.templates.conv2d import Conv2dTemplate
    from anole.targets.cuda.templates.depthwise import DepthwiseTemplate
    from anole.targets.cuda.templates.gemv import GemvTemplate
    from anole.targets.cuda.templates.products import BatchMatmulTemplate, GemmTemplate
    from anole.targets.cuda.templates.winograd import WinogradTemplate
    from anole.targets.shared.algorithm_choice import ChoiceTemplate

    if isinstance(workload, Conv2d):
        if is_depthwise(workload):
            return DepthwiseTemplate()
        if has_choice(workload) and not direct:
            return ChoiceTemplate({DIRECT: Conv2dTemplate(), WINOGRAD: WinogradTemplate()})
        return Conv2dTemplate()
    if isinstance(workload, BatchMatmul):
        return BatchMatmulTemplate()
    return GemvTemplate() if workload.batch <= MOST_ROWS else GemmTemplate()
