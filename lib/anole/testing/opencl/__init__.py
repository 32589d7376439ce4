"""Runs CUDA candidates without a GPU, as OpenCL kernels with real work-groups, local memory and barriers."""
