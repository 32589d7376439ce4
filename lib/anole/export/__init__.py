"""From a build to a C library: the sequence of kernels in C, the weights, and kernels for several processors."""
