"""What can be said of CUDA kernels without a GPU, and what `make bench-gpu` measures on one."""
