"""Benchmarks of large projects: database, report and planning."""
