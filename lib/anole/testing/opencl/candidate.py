"""A candidate of a CUDA template, lowered for OpenCL, with the inputs that it is run on and the expected result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from anole.record import Config
from anole.targets.base import Template
from anole.targets.cuda.settings import describe_cuda
from anole.targets.shared.reference import Example
from anole.task import Workload
from anole.testing.opencl.launches import Launches
from anole.testing.opencl.lowering import lower

Array = NDArray[np.float32]

_DESCRIPTION = describe_cuda("sm_90")
"""Kernels are the same for all architectures, up to the CUDA compiler."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """Launches, and what they are given and should give.

    Attributes:
        launches: the kernels and their launches.
        inputs: the values of the parameters that are read, by name.
        example: the same inputs, and the expected result.
    """

    launches: Launches
    inputs: Mapping[str, Array]
    example: Example

    @classmethod
    def of(cls, template: Template, workload: Workload, config: Config) -> Self:
        """Lowers a candidate and draws its inputs.

        Raises:
            NotCoveredError: TVM lowers it to other steps for OpenCL than for CUDA.
        """
        launches = lower(template, workload, config, _DESCRIPTION)
        example = Example.draw(workload)
        arguments = example.arguments(template.pack_weight(workload, config, example.weight))
        return cls(launches, dict(zip(launches.inputs, arguments, strict=True)), example)

    def relative_error(self, output: Array) -> float:
        """Returns the relative L2 distance of all values of the output from the float64 reference."""
        return self.example.relative_error(output.reshape(self.example.expected.shape))

    def mutated(self, mutate: Callable[[str], str]) -> Self:
        """Returns the candidate with other kernels, which should be found to be wrong."""
        return replace(self, launches=self.launches.with_source(mutate(self.launches.source)))
