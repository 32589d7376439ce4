"""Compare the registers predicted by the CUDA kernel model with the assembler's, as CSV; needs no GPU.

    python -m benchmarks.cuda.resources > docs/results/data/gpu_resources.csv

Random valid configs of every template are compiled for several architectures, as in tuning. `registers`,
`shared_bytes` and `local_bytes` are read from the binary, each the maximum over a candidate's kernels; `occupancy`
follows from them. The columns `model_*` are the values that the merit of a CUDA space uses, before compiling.
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
from anole_cuda.device.multiprocessor import Multiprocessor
from anole_cuda.settings import describe_cuda
from anole_cuda.target import CudaTarget
from anole_cuda.templates.conv2d_space import conv2d_kernel
from anole_cuda.templates.gemv_space import gemv_kernel
from anole_cuda.templates.product_space import product_kernel
from anole_cuda.templates.roofline import Kernel
from anole_cuda.templates.winograd_space import winograd_kernels
from benchmarks.common.arguments import described, listed
from benchmarks.common.rows import print_rows
from benchmarks.kernels.layers import conv2d
from kit.gpu_resources import resources

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
    parser = described(__doc__)
    parser.add_argument("--configs", type=int, default=8, help="number of configs per template and architecture")
    parser.add_argument("--architectures", type=listed(), default=ARCHITECTURES, help="comma-separated")
    given = parser.parse_args()
    print_rows(COLUMNS, compare_all(given.architectures, given.configs))


def compare_all(architectures: Sequence[str], n_configs: int) -> Iterator[dict[str, object]]:
    """Yield the rows of all templates on all architectures."""
    for number, arch in enumerate(architectures):
        target = CudaTarget(describe_cuda(arch))
        for template in WORKLOADS:
            for config in draw(target, template, n_configs, seed=number):
                yield {"template": template, "arch": arch, **compare(target, template, config)}


def draw(target: CudaTarget, template: str, n: int, seed: int) -> list[Config]:
    """Return random valid configs of a template, all with the same algorithm where there are two."""
    space = target.space(WORKLOADS[template])
    if template in space.algorithms:
        space = space.restricted({ALGORITHM: [template]})
    return [space.config(vector) for vector in space.sample(n, np.random.default_rng(seed))]


def compare(target: CudaTarget, template: str, config: Config) -> dict[str, object]:
    """Return the row of a candidate: resources by the assembler and by the model."""
    workload, arch = WORKLOADS[template], target.description["arch"]
    made = target.template(workload)
    text = source(made.schedule(define(made, workload, config), workload, config), target.description)
    found = resources(text, arch)
    space = target.space(workload)
    kernels = kernels_of(target.gpu, template, workload, space.columns(space.vector(config)[None, :]))
    # The main kernel of a candidate has the most threads and the most shared memory.
    kernel = max(kernels, key=lambda each: int(each.shared_bytes[0]))
    threads = int(kernel.threads[0])
    registers, shared_bytes = max(int(each.registers[0]) for each in kernels), int(kernel.shared_bytes[0])
    return {
        **{"threads": threads, "registers": found.registers},
        **{"shared_bytes": found.shared_bytes, "local_bytes": found.local_bytes},
        "occupancy": f"{found.occupancy(arch, threads):.3f}",
        **{"model_registers": registers, "model_shared_bytes": shared_bytes},
        "model_occupancy": f"{occupancy(target.gpu, kernel):.3f}",
        "config": json.dumps(config, separators=(",", ":")),
    }


def kernels_of(gpu: Multiprocessor, template: str, workload: Workload, columns: Columns) -> Sequence[Kernel]:
    """Return the model's description of the kernels of configs."""
    if template == "winograd":
        return winograd_kernels(gpu, workload, columns)
    if template == "gemv":
        return [gemv_kernel(gpu, workload, columns)]
    return [(conv2d_kernel if isinstance(workload, Conv2d) else product_kernel)(gpu, workload, columns)]


def occupancy(gpu: Multiprocessor, kernel: Kernel) -> float:
    """Return the modeled occupancy of a kernel: the share of a multiprocessor's warps that are resident."""
    blocks = gpu.resident_blocks(kernel.threads, kernel.registers, kernel.shared_bytes)
    return float(blocks[0] * -(-kernel.threads[0] // gpu.warp) / gpu.warps)


if __name__ == "__main__":
    main()
