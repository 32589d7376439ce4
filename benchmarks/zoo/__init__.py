"""Benchmarks of many networks and operators from other sources: coverage, correctness and speed."""
