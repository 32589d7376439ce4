"""From a build to a C library: the network's sequence of kernels in C, its weights, and kernels for several processors."""
