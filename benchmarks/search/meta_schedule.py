"""Tune a network with TVM's MetaSchedule, and run the result as a rival of builds.

    python -m benchmarks.search.meta_schedule resnet18 /tmp/resnet18 --trials 64      # for each task

As TVM recommends for CPUs, channels are last, and weights are packed for their kernels before the first run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anole.evaluate.engines import Engine
from benchmarks.common.arguments import make_parser

LIBRARY, WEIGHTS = "model.so", "weights.npz"

_MAX_TASKS = 1000
"""The total budget in tasks, which must be given, and never limits."""


def main() -> None:
    """Tune a network and write its library and weights to a folder."""
    parser = make_parser(__doc__)
    parser.add_argument("network", help="a torchvision name")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--trials", type=int, default=64, help="trials per task")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    tune_network(arguments.network, arguments.folder, arguments.trials)


def tune_network(network: str, folder: Path, trials: int) -> None:
    """Tune a torchvision network with random weights, at batch 1 and 224 x 224, with a number of trials per task."""
    import tvm
    from tvm import relax

    from anole.config.entries import TargetSpec
    from anole.project.hardware import describe_target
    from anole.targets import get_target

    description = describe_target(TargetSpec("cpu", "cpu"))
    threads = get_target(description).threads
    target = tvm.target.Target({"kind": "llvm", "mcpu": description["mcpu"], "num-cores": threads})
    folder.mkdir(parents=True, exist_ok=True)
    module, weights = import_network(network)
    began_s = time.perf_counter()
    tuned = relax.get_pipeline(
        "static_shape_tuning",
        total_trials=trials * _MAX_TASKS,
        target=target,
        work_dir=str(folder / "records"),
        cpu_weight_prepack=True,
        max_trials_per_task=trials,
    )(module)
    executable = tvm.compile(tuned, target=target)
    executable.export_library(str(folder / LIBRARY))
    np.savez(folder / WEIGHTS, *[weight.numpy() for weight in weights])
    logging.warning("%s: %.0f s", network, time.perf_counter() - began_s)


def import_network(network: str) -> tuple[Any, Sequence[Any]]:
    """Return a network as a Relax module with channels last, and its weights, which are inputs of the module."""
    import torch
    import torchvision
    from tvm import relax
    from tvm.relax.frontend.torch import from_exported_program

    torch.manual_seed(0)
    model = torchvision.models.get_model(network, weights=None).eval()
    with torch.no_grad():
        exported = torch.export.export(model, (torch.zeros(1, 3, 224, 224),))
    module, weights = relax.frontend.detach_params(from_exported_program(exported, keep_params_as_input=True))
    layouts = {"relax.nn.conv2d": ["NHWC", "HWIO"]}
    return relax.transform.ConvertLayout(layouts)(module), weights["main"]


def meta_schedule_engine(folder: Path, inputs: Sequence[NDArray[Any]]) -> Engine:
    """Return an engine for the output of `tune_network`."""
    import tvm
    from tvm.runtime.vm import VirtualMachine

    machine = VirtualMachine(tvm.runtime.load_module(str(folder / LIBRARY)), tvm.cpu())
    with np.load(folder / WEIGHTS) as stored:
        weights = [tvm.runtime.tensor(stored[name]) for name in stored.files]
    laid_out = machine["main_transform_params"](weights)
    arguments = [tvm.runtime.tensor(array) for array in inputs]
    main = machine["main"]

    def outputs(found: Any) -> list[NDArray[Any]]:
        return [each.numpy() for each in ([found] if isinstance(found, tvm.runtime.Tensor) else found)]

    return Engine("metaschedule", lambda: main(*arguments, *laid_out), outputs)


if __name__ == "__main__":
    main()
