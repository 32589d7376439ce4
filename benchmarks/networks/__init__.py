"""Benchmarks of entire networks: latency compared with other engines, and accuracy."""
