"""Benchmarks on shared machines: background load, several networks at once, CPU quotas, and device servers."""
