"""The algorithms of a convolution on the CPU; where there are two, a config chooses one."""

from __future__ import annotations

from functools import cache

from anole.record import Config
from anole.space import ALGORITHM, Space, union
from anole.targets.base import DIRECT, WINOGRAD, Template
from anole.targets.cpu.device.vector_unit import VectorUnit
from anole.targets.cpu.templates import conv2d_space as direct
from anole.targets.cpu.templates import depthwise_space as depthwise
from anole.targets.cpu.templates import grouped_space as grouped
from anole.targets.cpu.templates import idle_steps, rounding
from anole.targets.cpu.templates import winograd_space as winograd
from anole.task import Conv2d

VERSIONS = {
    "conv2d": direct.VERSION,
    "cover": rounding.VERSION,
    "conv2d.prefetch": direct.PREFETCH_VERSION,
    "conv2d.idle": idle_steps.VERSION,
    "conv2d.gap": direct.GAP_VERSION,
    "conv2d.depthwise": depthwise.VERSION,
    "conv2d.grouped": grouped.VERSION,
    "conv2d.winograd": winograd.VERSION,
}


def has_choice(w: Conv2d, exact: bool) -> bool:
    """Returns whether Winograd is an option; it is not if a convolution must be computed exactly as defined."""
    return winograd.can_winograd(w) and not exact and not w.exact


def convolution_version(unit: VectorUnit, w: Conv2d, exact: bool) -> int:
    """Returns the version of a convolution's template, which rises with the version of each possible algorithm.

    It is a sum and has the fault that `CpuTarget.template_version` describes.
    """
    version = direct.VERSION
    if depthwise.is_depthwise(w):
        version += depthwise.VERSION
    elif direct.conv2d_prefetches(w):
        version += direct.PREFETCH_VERSION
    if grouped.is_bundled(unit, w):
        version += grouped.VERSION
    elif not depthwise.is_depthwise(w):
        version += rounding.covering_version(w.out_width)
        version += idle_steps.VERSION if idle_steps.skips(w) else 0
        version += direct.GAP_VERSION if direct.leaves_gaps(w) else 0
    return version + (winograd.VERSION if has_choice(w, exact) else 0)


@cache
def convolution_space(unit: VectorUnit, threads: int, w: Conv2d, exact: bool) -> Space:
    """Returns the space of a convolution: grouped, depthwise, or direct and, where applicable, Winograd."""
    if grouped.is_bundled(unit, w):
        return grouped.grouped_space(unit, threads, w)
    if depthwise.is_depthwise(w):
        return depthwise.depthwise_space(unit, threads, w)
    space = direct.conv2d_space(unit, threads, w)
    if not has_choice(w, exact):
        return space
    return union({DIRECT: space, WINOGRAD: winograd.winograd_space(unit, threads, w)})


def convolution_default(unit: VectorUnit, threads: int, w: Conv2d, exact: bool) -> Config:
    """Returns a valid config of the algorithm that is probably faster."""
    if not has_choice(w, exact):
        return convolution_space(unit, threads, w, exact).best_drawn
    if winograd.winograd_pays(unit, threads, w):
        return {ALGORITHM: WINOGRAD, **winograd.winograd_space(unit, threads, w).best_drawn}
    return {ALGORITHM: DIRECT, **direct.conv2d_space(unit, threads, w).best_drawn}


def convolution_template(unit: VectorUnit, w: Conv2d, exact: bool) -> Template:
    """Returns the template of a convolution; its space has the same name."""
    from anole.targets.cpu.templates.conv2d import Conv2dTemplate
    from anole.targets.cpu.templates.depthwise import DepthwiseTemplate
    from anole.targets.cpu.templates.grouped import GroupedTemplate
    from anole.targets.cpu.templates.winograd import WinogradTemplate
    from anole.targets.shared.algorithm_choice import ChoiceTemplate

    if grouped.is_bundled(unit, w):
        return GroupedTemplate(unit)
    if depthwise.is_depthwise(w):
        return DepthwiseTemplate(unit)
    if not has_choice(w, exact):
        return Conv2dTemplate(unit)
    return ChoiceTemplate({DIRECT: Conv2dTemplate(unit), WINOGRAD: WinogradTemplate(unit)})
