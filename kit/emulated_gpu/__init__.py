"""An emulated GPU: CUDA kernels run on the CPU, through TVM's own CUDA runtime, and every memory access is checked.

`machine` builds an environment in which programs find a GPU: libraries in place of CUDA's driver and runtime, a CUDA
C++ compiler and an `nvidia-smi`. All programs, from one candidate to an entire `snakemake`, run the same code as with a
GPU. Speeds depend on the CPU, and say nothing about a GPU.

    python -m kit.emulated_gpu snakemake --cores 2
"""
