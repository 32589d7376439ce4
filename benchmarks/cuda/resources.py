"""Compare the registers predicted by the CUDA kernel model with the assembler's, as CSV; needs no GPU.

    python -m benchmarks.cuda.resources > docs/results/data/gpu_resources.csv

Random valid configs of every template are compiled for several architectures, as in tuning. `registers`,
`shared_bytes` and `local_bytes` are read from the binary, each the maximum over a candidate's kernels; `occupancy`
follows from them. The columns `model_*` have the predicted values, from which a CUDA space computes its merit (the
analytical score of a config).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from anole.record import Config
from anole.space import ALGORITHM
from anole.space.space import Columns
from anole.targets.shared.kernel import define
from anole.task import BatchMatmul, Conv2d, Dense, Workload
from anole_cuda.device.builder import source
from anole_cuda.device.gpu_specs import GpuSpecs
from anole_cuda.settings import describe_cuda
from anole_cuda.target import CudaTarget
from anole_cuda.templates.conv2d_space import conv2d_kernel
from anole_cuda.templates.gemv_space import gemv_kernel
from anole_cuda.templates.product_space import product_kernel
from anole_cuda.templates.roofline import Kernel
from anole_cuda.templates.winograd_space import winograd_kernels
from benchmarks.common.arguments import list_of, make_parser
from benchmarks.common.rows import print_rows
from benchmarks.kernels.layers import conv2d
from kit.gpu_resources import resources_of

WORKLOADS: Mapping[str, Workload] = {
    "conv2d": conv2d(28, 128, 256, stride=2),
    "pointwise": conv2d(14, 256, 1024, 1),
    "grouped": conv2d(28, 128, 128, groups=4),
    "depthwise": conv2d(56, 96, 96, groups=96),
    "direct": conv2d(28, 128, 128),
    "winograd": conv2d(28, 128, 128),
    "gemm": Dense(128, 768, 768),
    "gemv": Dense(1, 512, 1000),
    "batch_matmul": BatchMatmul(12, 128, 64, 128),
    "transposed": BatchMatmul(12, 128, 128, 64, transpose_right=True),
}
ARCHITECTURES = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")
COLUMNS = (
    *("template", "arch", "threads", "registers", "shared_bytes", "local_bytes", "occupancy"),
    *("model_registers", "model_shared_bytes", "model_occupancy", "config"),
)


def main() -> None:
    """Print a row for each candidate and architecture."""
    parser = make_parser(__doc__)
    parser.add_argument("--configs", type=int, default=8, help="number of configs per template and architecture")
    parser.add_argument("--architectures", type=list_of(), default=ARCHITECTURES, help="comma-separated")
    args = parser.parse_args()
    print_rows(COLUMNS, compare_all(args.architectures, args.configs))


def compare_all(architectures: Sequence[str], n_configs: int) -> Iterator[dict[str, object]]:
    """Yield the rows of all templates on all architectures."""
    for seed, arch in enumerate(architectures):
        target = CudaTarget(describe_cuda(arch))
        for name in WORKLOADS:
            for config in sample_configs(target, name, n_configs, seed=seed):
                yield {"template": name, "arch": arch, **compare(target, name, config)}


def sample_configs(target: CudaTarget, template: str, n: int, seed: int) -> list[Config]:
    """Return random valid configs of a template, with its algorithm if the layer's space has several."""
    space = target.space(WORKLOADS[template])
    if template in space.algorithms:
        space = space.restrict({ALGORITHM: [template]})
    return [space.config(vector) for vector in space.sample(n, np.random.default_rng(seed))]


def compare(target: CudaTarget, name: str, config: Config) -> dict[str, object]:
    """Return the row of a candidate: its resources according to the assembler and to the model."""
    workload, arch = WORKLOADS[name], target.description["arch"]
    template = target.template(workload)
    text = source(template.schedule(define(template, workload, config), workload, config), target.description)
    usage = resources_of(text, arch)
    space = target.space(workload)
    kernels = kernels_of(target.gpu, name, workload, space.columns(space.vector(config)[None, :]))
    # The main kernel of a candidate has the most threads and the most shared memory.
    main_kernel = max(kernels, key=lambda kernel: int(kernel.shared_bytes[0]))
    threads = int(main_kernel.threads[0])
    registers, shared_bytes = max(int(kernel.registers[0]) for kernel in kernels), int(main_kernel.shared_bytes[0])
    return {
        **{"threads": threads, "registers": usage.registers},
        **{"shared_bytes": usage.shared_bytes, "local_bytes": usage.local_bytes},
        "occupancy": f"{usage.occupancy(arch, threads):.3f}",
        **{"model_registers": registers, "model_shared_bytes": shared_bytes},
        "model_occupancy": f"{occupancy(target.gpu, main_kernel):.3f}",
        "config": json.dumps(config, separators=(",", ":")),
    }


def kernels_of(gpu: GpuSpecs, name: str, workload: Workload, columns: Columns) -> Sequence[Kernel]:
    """Return the model's descriptions of the kernels that a template makes of configs."""
    if name == "winograd":
        return winograd_kernels(gpu, workload, columns)
    if name == "gemv":
        return [gemv_kernel(gpu, workload, columns)]
    return [(conv2d_kernel if isinstance(workload, Conv2d) else product_kernel)(gpu, workload, columns)]


def occupancy(gpu: GpuSpecs, kernel: Kernel) -> float:
    """Return the modeled occupancy of a kernel: the share of a multiprocessor's warps that are resident."""
    blocks = gpu.resident_blocks(kernel.threads, kernel.registers, kernel.shared_bytes)
    return float(blocks[0] * -(-kernel.threads[0] // gpu.warp) / gpu.warps)


if __name__ == "__main__":
    main()
