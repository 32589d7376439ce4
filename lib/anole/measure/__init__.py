"""Measure candidates: builders compile them, a runner times them, and a measurer coordinates both."""
