"""Shared code of tests and benchmarks: an emulated GPU, large projects, and metrics and controls for searches."""
