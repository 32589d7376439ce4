"""Benchmarks of CUDA kernels: models and emulation without a GPU, and `make bench-gpu` with one."""
