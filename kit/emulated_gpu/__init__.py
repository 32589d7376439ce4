"""An emulated GPU: CUDA kernels run on this processor, through TVM's own CUDA runtime, and every access is checked.

`machine` builds an environment in which programs find a GPU: libraries in place of CUDA's driver and runtime, a
compiler of CUDA C++ and an `nvidia-smi`. Everything in it, from one candidate to all of `snakemake`, runs the same code
as with a GPU. Speeds depend on this processor, and mean nothing for a GPU.

    python -m kit.emulated_gpu snakemake --cores 2
"""
