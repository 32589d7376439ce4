"""The emulated GPU as an engine that judges CUDA candidates."""

from __future__ import annotations

import re
from typing import Self

from anole.errors import MachineError, TargetError
from anole.record import Config
from anole.targets.base import Template
from anole.targets.cuda.settings import describe_cuda
from anole.task import Workload
from anole.testing.emulated_gpu.programs import candidate_error
from anole.testing.emulated_gpu.worker import EmulatedGpu, EmulationError
from anole.testing.gpu_verdict import Outcome, Verdict, by_error

_DESCRIPTION = describe_cuda("sm_90")

_OUTCOMES = {
    Outcome.RACY: r"race: |come to a barrier|lanes of its warp",
    Outcome.INVALID: r"of every array|is misaligned|leaves an array|nothing wrote",
}
"""Words of the device's messages, by what they mean."""


class EmulatedGpuEngine:
    """Executes the CUDA source of candidates."""

    def __enter__(self) -> Self:
        """Starts a process with an emulated GPU.

        Raises:
            TargetError: none can be emulated here.
        """
        try:
            self._gpu = EmulatedGpu()
        except MachineError as error:
            raise TargetError(str(error)) from error
        return self

    def __exit__(self, *raised: object) -> None:
        self._gpu.close()

    def judge(self, template: Template, workload: Workload, config: Config) -> Verdict:
        """Executes a candidate and compares its result."""
        try:
            error = self._gpu.call(candidate_error, _DESCRIPTION, workload, config, None, template)
        except EmulationError as fault:
            found = (outcome for outcome, words in _OUTCOMES.items() if re.search(words, str(fault)))
            return Verdict(next(found, Outcome.FAILED), detail=str(fault))
        return Verdict(by_error(error), error)
