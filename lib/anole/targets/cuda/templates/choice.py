"""Chooses the CUDA template of a workload."""

from __future__ import annotations

from anole.targets.base import Template
from anole.targets.cuda.templates.algorithms import has_choice
from anole.targets.cuda.templates.batch_matmul import BatchMatmulTemplate
from anole.targets.cuda.templates.conv2d import Conv2dTemplate
from anole.targets.cuda.templates.depthwise import DepthwiseTemplate
from anole.targets.cuda.templates.depthwise_space import is_depthwise
from anole.targets.cuda.templates.gemm import GemmTemplate
from anole.targets.cuda.templates.gemv import GemvTemplate
from anole.targets.cuda.templates.gemv_space import MOST_ROWS
from anole.targets.cuda.templates.winograd import WinogradTemplate
from anole.targets.shared.algorithm_choice import ChoiceTemplate
from anole.targets.shared.algorithm_names import DIRECT, WINOGRAD
from anole.task import BatchMatmul, Conv2d, Workload


def template_of(workload: Workload, *, direct: bool = False) -> Template:
    """Returns the template of a workload; its space has the same name.

    Args:
        workload: the workload.
        direct: whether a convolution is direct where it could also be Winograd's.
    """
    if isinstance(workload, Conv2d):
        if is_depthwise(workload):
            return DepthwiseTemplate()
        if has_choice(workload) and not direct:
            return ChoiceTemplate({DIRECT: Conv2dTemplate(), WINOGRAD: WinogradTemplate()})
        return Conv2dTemplate()
    if isinstance(workload, BatchMatmul):
        return BatchMatmulTemplate()
    return GemvTemplate() if workload.batch <= MOST_ROWS else GemmTemplate()
