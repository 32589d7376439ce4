"""Benchmarks of the accelerator: exhaustive design spaces, and simulation speed."""
