"""Benchmarks of single CPU kernels: code generation, roofline and thread use."""
