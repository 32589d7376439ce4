"""Benchmarks on shared machines: background load, concurrent networks, CPU quotas, and device servers."""
