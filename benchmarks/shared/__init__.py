"""Benchmarks on shared machines: background load, several networks, quotas, servers."""
