"""The open spaces of CUDA: those of AutoTVM's users, with the papers' knobs and no constraints; needs no compiler."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from anole.errors import ConfigError
from anole.record import Config
from anole.space import Space
from anole.targets.cuda.device.architecture import BlockLimits
from anole.targets.cuda.device.multiprocessor import Multiprocessor
from anole.targets.cuda.templates.conv2d_space import conv2d_space
from anole.targets.cuda.templates.depthwise_space import depthwise_space, is_depthwise
from anole.targets.cuda.templates.gemv_space import MOST_ROWS
from anole.targets.cuda.templates.product_space import batch_matmul_space, gemm_space
from anole.task import BatchMatmul, Conv2d, Workload

VERSION = 1


@dataclass(frozen=True, eq=False)
class Opened:
    """An open space, and the constrained one that knows what cannot run; both have the same knobs.

    Attributes:
        constrained: the space whose config of most merit is the default.
        space: the same knobs without constraints.
    """

    constrained: Space
    space: Space

    def check(self, config: Config) -> None:
        """Checks that a block of threads has what a config takes, as AutoTVM's builder did before it compiled.

        Raises:
            ConfigError: it has not; the message is the limit.
        """
        if (reason := self.constrained.refusal(config)) is not None:
            raise ConfigError(reason)


@cache
def opened(limits: BlockLimits, gpu: Multiprocessor, w: Workload) -> Opened | None:
    """Returns the open space of a workload, or None if it has none, as dense layers of few rows."""
    space = _constrained(limits, gpu, w)
    return None if space is None else Opened(space, space.opened())


def _constrained(limits: BlockLimits, gpu: Multiprocessor, w: Workload) -> Space | None:
    """Returns the constrained space of one algorithm, the direct one for convolutions."""
    if isinstance(w, Conv2d):
        return depthwise_space(limits, gpu, w) if is_depthwise(w) else conv2d_space(limits, gpu, w)
    if isinstance(w, BatchMatmul):
        return batch_matmul_space(limits, gpu, w)
    return None if w.batch <= MOST_ROWS else gemm_space(limits, gpu, w)
