"""The space, default config and template of any workload on CUDA; a convolution may have two algorithms.

An open space has the knobs of AutoTVM's template for the direct algorithm, and no constraints.
"""

from __future__ import annotations

from functools import cache
from typing import TypeGuard

from anole.errors import ConfigError
from anole.record import Config
from anole.space import ALGORITHM, Space, union
from anole.targets.base import DIRECT, WINOGRAD, Template
from anole.task import BatchMatmul, Conv2d, Workload
from anole_cuda.device.architecture import BlockLimits
from anole_cuda.device.gpu_specs import GpuSpecs
from anole_cuda.templates.conv2d_space import conv2d_space, is_depthwise
from anole_cuda.templates.gemv_space import gemv_space, has_few_rows
from anole_cuda.templates.product_space import product_space
from anole_cuda.templates.winograd_space import can_winograd, winograd_space

OPEN_SPACE_VERSION = 1
"""Added to the template's version in open spaces."""
_MIN_WINOGRAD_SPEEDUP = 1.5
"""Winograd is the default if the model predicts at least this speedup over direct convolution. On a V100, Winograd was
then faster on all 27 recorded layers; smaller predicted speedups are less certain (docs/results/gpu-model.md)."""


@cache
def space_of(limits: BlockLimits, gpu: GpuSpecs, w: Workload) -> Space:
    """Return the space of a workload, including the choice of algorithm if there is one."""
    spaces = _spaces_by_algorithm(limits, gpu, w)
    return union(spaces) if len(spaces) > 1 else spaces[DIRECT]


def default_config(limits: BlockLimits, gpu: GpuSpecs, w: Workload) -> Config:
    """Return the config with the best modeled speed in a sample; Winograd must win by `_MIN_WINOGRAD_SPEEDUP`."""
    spaces = _spaces_by_algorithm(limits, gpu, w)
    if len(spaces) == 1:
        return spaces[DIRECT].best_sampled
    speeds = {name: _best_speed(space) for name, space in spaces.items()}
    algorithm = WINOGRAD if speeds[WINOGRAD] >= _MIN_WINOGRAD_SPEEDUP * speeds[DIRECT] else DIRECT
    return {ALGORITHM: algorithm, **spaces[algorithm].best_sampled}


@cache
def open_space(limits: BlockLimits, gpu: GpuSpecs, w: Workload) -> Space:
    """Return `space_without_winograd` without its prior knowledge: constraints, merit and core (`Space.to_open`)."""
    return space_without_winograd(limits, gpu, w).to_open()


def space_without_winograd(limits: BlockLimits, gpu: GpuSpecs, w: Workload) -> Space:
    """Return the space of a workload; the space of a convolution excludes Winograd."""
    if isinstance(w, Conv2d):
        return conv2d_space(limits, gpu, w)
    return gemv_space(limits, gpu, w) if has_few_rows(w) else product_space(limits, gpu, w)


def _spaces_by_algorithm(limits: BlockLimits, gpu: GpuSpecs, w: Workload) -> dict[str, Space]:
    """Return the space of each algorithm of a workload; `DIRECT` is the only algorithm of matrix products."""
    direct = {DIRECT: space_without_winograd(limits, gpu, w)}
    return {**direct, WINOGRAD: winograd_space(limits, gpu, w)} if _has_choice(w) else direct


def _has_choice(w: Workload) -> TypeGuard[Conv2d]:
    """Whether a workload is a convolution with a choice between direct and Winograd."""
    return isinstance(w, Conv2d) and can_winograd(w) and not is_depthwise(w) and not w.exact


def _best_speed(space: Space) -> float:
    """Return the modeled speed of a space's best sampled config; 0 if no config fits the device."""
    try:
        return space.merit_of(space.best_sampled)
    except ConfigError:
        return 0.0


def template_of(w: Workload, *, direct: bool) -> Template:
    """Return the template of a workload; `direct` excludes Winograd."""
    from anole.targets.shared.templates import ChoiceTemplate
    from anole_cuda.templates.conv2d import Conv2dTemplate, DepthwiseTemplate
    from anole_cuda.templates.gemv import GemvTemplate
    from anole_cuda.templates.products import BatchMatmulTemplate, GemmTemplate
    from anole_cuda.templates.winograd import WinogradTemplate

    if isinstance(w, Conv2d):
        if is_depthwise(w):
            return DepthwiseTemplate()
        if _has_choice(w) and not direct:
            return ChoiceTemplate({DIRECT: Conv2dTemplate(), WINOGRAD: WinogradTemplate()})
        return Conv2dTemplate()
    if isinstance(w, BatchMatmul):
        return BatchMatmulTemplate()
    return GemvTemplate() if has_few_rows(w) else GemmTemplate()
