"""Export of a build as a C library: a sequence of kernel calls in C, weights, and kernels for several CPUs."""
